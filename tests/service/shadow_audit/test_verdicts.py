"""What the verdicts of the shadow audit do to requests: suspension by real pairs, the audit turned round, recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.backend.watched_gates import SuspendedChoice
from service.shadow_audit.sample import ChosenSample, case_of, satisfied
from service.shadow_audit.store import ShadowStore
from service.storage.database import open_database
from tests.gate_models import synthetic_gates as gates
from tests.service.shadow_audit.shadowing import CONSTANT, KEYWORDS, Desk, audits, text_of
from tests.shipped import mini


@pytest.fixture
def database(tmp_path):
    opened = open_database(f"sqlite:///{tmp_path / 'audits.db'}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def bundle():
    return gates.bundle(mini().spec.hash)


def planted(desk, count, *, handoff, full):
    """Pairs of different prompts, as another server on the database would have found them; the gate."""
    prepared, (handle,) = desk.serve()
    gate, asked = desk.shadow._asked(prepared)
    chosen = ChosenSample(gate, asked, "handoff", prepared.id, 0, handle)
    case = case_of(chosen, mini(), desk.backend.gates.reader)
    desk.shadow._arrived.get()
    other = ShadowStore(desk.shadow.store.database, "other", 60)
    cases = [replace(case, prompt=f"p{index}", request_id=f"gen-{index}") for index in range(count)]
    assert other.keep(cases, {}, count) == 0
    for _ in cases:
        other.finish(other.claim(mini().spec.hash), handoff=handoff, full=full, rows=1, texts={})
    return gate


def test_a_gate_that_does_harm_is_suspended_and_says_so(database, caplog):
    """A cut at 0 is the base decoder, which satisfies fewer constraints: real pairs, no made-up ones."""
    desk = Desk(database, cut=0.0, audit_margin=0.05)
    with caplog.at_level("INFO", logger="service.shadow_audit.verdicts"):
        for first in range(0, 240, 40):
            desk.serve_prompts(40, first)
            desk.audit()
            if desk.shadow.watch.state(desk.shadow.watch.held[0]) == "suspended":
                break
    assert desk.value('gate_state{family="commongen-k3",state="suspended"}') == 1
    assert [record.levelname for record in caplog.records if "is suspended" in record.getMessage()] == ["WARNING"]
    prepared, (handle,) = desk.serve()
    assert isinstance(prepared.choice, SuspendedChoice)
    assert prepared.fallback == "suspended"
    assert prepared.choice.fallback_reason.startswith("gate suspended by the shadow audit")
    assert handle.result().handoff_step is None
    assert handle.result().ledger.total == 32
    other, _ = desk.admit(policy={**CONSTANT, "on_fallback": "base"})
    assert other.job.handed_off
    assert other.chosen == frozenset()
    with pytest.raises(Exception, match="gate suspended by the shadow audit"):
        desk.admit(policy={**CONSTANT, "on_fallback": "reject"})
    again = Desk(database, cut=0.0, audit_margin=0.05)  # another server finds it so before it has read the pairs
    assert again.admit()[0].fallback == "suspended"
    again.shadow.watch.refresh()
    assert again.shadow.watch.verdict(again.shadow.watch.held[0]) == desk.shadow.watch.verdict(
        desk.shadow.watch.held[0]
    )


def test_a_suspended_gate_is_shadowed_and_recovers(database):
    """While suspended the handoff is the shadow: it is what the base tail makes of the served run's own prefix."""
    desk = Desk(database, audit_margin=0.4)
    gate = planted(desk, 20, handoff=False, full=True)
    desk.shadow.watch.refresh()
    assert desk.shadow.watch.state(gate) == "suspended"
    for first in range(0, 120, 30):
        desk.serve_prompts(30, first)
        desk.audit()
        if desk.shadow.watch.state(gate) == "active":
            break
    assert desk.shadow.watch.state(gate) == "active"
    shadowed = [audit for audit in audits(database) if audit.served == "full"]
    assert {audit.step for audit in shadowed} == {10}
    assert {audit.rows for audit in shadowed} == {1}  # three masks, eight a step
    prepared, (handle,) = desk.serve()
    assert prepared.fallback is None
    assert handle.result().handoff_step == 10


def test_a_suspended_learned_gate_is_read_off_the_served_run(database, bundle):
    desk = Desk(database, bundles=(bundle,), audit_margin=0.4)
    policy = {"gate": {"source": "policy"}, "tail_width": 8}
    _, (before,) = desk.serve(policy=policy, seed=9)
    gate = next(gate for gate in desk.shadow.watch.held if gate.source == "policy" and gate.tail_width == 8)
    desk.audit()
    desk.shadow.watch._states[gate] = "suspended"
    _, (handle,) = desk.serve(policy=policy, seed=9)
    assert handle.result().handoff_step is None
    desk.audit()
    mine = audits(database)[-1]
    assert (mine.served, mine.step) == ("full", before.result().handoff_step)
    assert mine.full_ok == satisfied(KEYWORDS, text_of(handle.result().content))
    assert mine.features["schema"]
