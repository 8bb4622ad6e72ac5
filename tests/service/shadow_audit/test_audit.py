"""The online shadow audit: which samples it takes, what it compares, and what its verdicts do to requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import update

from decoding.engine.rollouts import continuations
from decoding.gates.builtin import NeverGate
from decoding.request.job import Anchor
from gate_models.committor.horizon import state_at
from service.shadow_audit.audit import chosen_samples
from service.shadow_audit.sample import job_of, recipe_of, satisfied, would_hand_off
from service.shadow_audit.tables import AUDITS
from service.storage.database import open_database
from service.storage.leases import MAX_ATTEMPTS
from tests.gate_models import synthetic_gates as gates
from tests.service.shadow_audit.shadowing import CONSTANT, KEYWORDS, Desk, audits, text_of
from tests.shipped import mini


@pytest.fixture
def database(tmp_path):
    opened = open_database(f"sqlite:///{tmp_path / 'audits.db'}")
    yield opened
    opened.close()


# Choice


def test_samples_are_chosen_by_a_hash_of_their_name_alone():
    names = [f"gen-{index}" for index in range(4000)]
    chosen = {name: chosen_samples(name, 2, 0.1) for name in names}
    assert chosen == {name: chosen_samples(name, 2, 0.1) for name in names}
    share = sum(len(samples) for samples in chosen.values()) / 8000
    assert abs(share - 0.1) < 5 * (0.1 * 0.9 / 8000) ** 0.5
    assert all(chosen_samples(name, 2, 0.02) <= samples for name, samples in chosen.items())
    assert chosen_samples("gen-1", 8, 1.0) == frozenset(range(8))
    assert chosen_samples("gen-1", 8, 0.0) == frozenset()


@pytest.mark.parametrize(
    "policy",
    [
        {"preset": "base"},
        {"preset": "full_cfg"},
        {"preset": "auto"},
        {"gate": {"source": "fraction", "fraction": 0.3}},
        {"gate": {"source": "drained"}},
        {"gate": {"source": "constant"}, "tail_width": 4},
        {"gate": {"source": "policy"}},
    ],
    ids=lambda policy: policy.get("preset") or json.dumps(policy["gate"]),
)
def test_only_gates_that_need_evidence_are_watched(database, policy):
    """A fraction or a threshold is the caller's own; without a gate for the setting nothing hands off."""
    prepared, _ = Desk(database).admit(policy=policy)
    assert prepared.chosen == frozenset()


def test_a_cut_that_never_hands_off_is_not_watched(database):
    desk = Desk(database, never=True)
    prepared, _ = desk.admit(policy=CONSTANT)
    assert prepared.choice.gate.source == "constant"
    assert prepared.chosen == frozenset()


def test_shares_follow_the_state(database):
    desk = Desk(database, audit_share=0.25, audit_share_uncertified=0.5)
    gate = desk.shadow.watch.held[0]
    assert desk.shadow.watch.share(gate) == 0.5
    desk.shadow.watch._states[gate] = "active"
    assert desk.shadow.watch.share(gate) == 0.25
    desk.shadow.watch._states[gate] = "suspended"
    assert desk.shadow.watch.share(gate) == 0.5
    assert Desk(database, audit_share=0.0).shadow.watch.share(gate) == 0.0
    off = Desk(database, audit_share=0.0)
    assert off.admin(1.0, n=3).chosen == {0, 1, 2}
    assert off.admit(n=3)[0].chosen == frozenset()


# Pairs


def test_a_pair_is_what_an_independent_run_gives(database):
    """The state, the noise key and the verdict of the shadow, recomputed from the request alone."""
    desk = Desk(database)
    prepared, handles = desk.serve(n=3, seed=11)
    desk.audit()
    done = sorted(audits(database), key=lambda audit: audit.sample)
    assert sorted(audit.sequence for audit in done) == [1, 2, 3]
    assert [audit.sample for audit in done] == [0, 1, 2]
    assert desk.value("audit_pairs_total") == 3
    assert desk.value('forward_rows_total{branch="unconditional",purpose="audit"}') > 0
    for audit, handle in zip(done, handles, strict=True):
        outcome = handle.result()
        assert outcome.ledger.of(purpose="audit") == 0
        assert audit.step == outcome.handoff_step
        assert audit.handoff_ok == satisfied(KEYWORDS, text_of(outcome.content))
        state = state_at(outcome.job, outcome.trace, outcome.handoff_step, "any", mini().spec.mask_id)
        arm = f"{prepared.id}/{audit.sample}|full"
        (job,) = continuations(
            outcome.job,
            Anchor(tuple(state.canvas), state.step, state.place),
            guided=True,
            count=1,
            arm=arm,
            purpose="audit",
        )
        (again,) = desk.engine.submit_all([job])
        desk.run()
        assert audit.texts == {"handoff": text_of(outcome.content), "full": text_of(again.result().content)}
        assert audit.full_ok == satisfied(KEYWORDS, audit.texts["full"])
        assert audit.rows == again.result().ledger.total == 2 * (outcome.job.steps - outcome.handoff_step)


def test_a_job_survives_the_database(database):
    desk = Desk(database)
    body = {"temperature": 0.7, "top_p": 0.9, "block_length": 8, "eos_fill": True, "seed": 5}
    policy = {"preset": "reopen_repair", "gate": {"source": "fraction", "fraction": 0.3}, "tail_width": 4}
    prepared, _ = desk.admit(**body, policy=policy)
    job = prepared.job
    again = job_of(json.loads(json.dumps(recipe_of(job))))
    policy = replace(job.policy, repair=None)
    assert again == replace(job, policy=policy, gate=again.gate, predicate=None, record="commits")
    assert job.policy.repair is not None


def test_repair_does_not_reach_a_pair(database):
    """The outcome is that of the first text, whatever repair made of it."""
    desk = Desk(database)
    repair = {"selector": "commit_confidence", "max_rounds": 2}
    policy = {"preset": "reopen_repair", **CONSTANT, "repair": repair}
    words = {"type": "keywords", "keywords": ["dog", "ball", "beach", "water"]}
    for seed in range(0, 400, 4):
        prepared, handles = desk.serve(constraint=words, policy=policy, seed=seed, n=4)
        outcomes = [handle.result() for handle in handles]
        repaired = [i for i, o in enumerate(outcomes) if not o.passes[0].satisfied and o.kept.satisfied]
        if repaired:
            break
    else:
        raise AssertionError("no text of 400 failed at first and was repaired")
    desk.shadow._take()
    done = {audit.sample: audit for audit in audits(database) if audit.request_id == prepared.id}
    for index in repaired:
        assert done[index].handoff_ok is False
        assert done[index].texts == {"handoff": outcomes[index].passes[0].text}
        assert done[index].texts["handoff"] != text_of(outcomes[index].content)


def test_a_caller_who_leaves_after_the_handoff_stays_in_the_sample(database):
    """Its tail is decoded in the shadow, with the noise that it would have had."""
    desk = Desk(database)
    policy = {"gate": {"source": "constant"}}
    _, (whole,) = desk.serve(policy=policy, seed=3)
    prepared, (handle,) = desk.admit(policy=policy, seed=3)
    early, (before,) = desk.admit(policy=policy, seed=4)
    with desk.shadow.watching(early, [before]):
        desk.engine.step()
        before.cancel()
    with desk.shadow.watching(prepared, [handle]):
        while handle.state.phase == "guided":
            desk.engine.step()
        handle.cancel()
    desk.audit()
    (audit,) = [audit for audit in audits(database) if audit.request_id == prepared.id]
    assert handle.error.reason == "cancelled"
    assert audit.texts["handoff"] == text_of(whole.result().content)
    assert audit.rows > 2 * (16 - audit.step)
    assert not [audit for audit in audits(database) if audit.request_id == early.id]
    (record,) = desk.shadow.store.gates(mini().spec.hash)
    assert (record.queued, record.kept, record.unfinished) == (2, 0, 1)


def test_an_audit_that_kills_servers_is_counted_as_dropped(database):
    desk = Desk(database)
    desk.serve(n=2)
    desk.shadow._take()
    with database.write() as connection:
        doomed = {"status": "running", "attempts": MAX_ATTEMPTS, "lease_until": 0.0}
        connection.execute(update(AUDITS).where(AUDITS.c.sample == 0).values(doomed))
    desk.audit()
    (record,) = desk.shadow.store.gates(mini().spec.hash)
    assert (record.failed, record.waiting) == (1, 0)
    assert (desk.value("audit_dropped_total"), desk.value("audit_pairs_total")) == (1, 1)
    assert desk.shadow.watch.verdict(record.gate).pairs == 1  # which had waited for the other one


def test_a_full_queue_drops_and_counts(database):
    desk = Desk(database, audit_queue=2)
    desk.serve(n=5)
    desk.shadow._take()
    assert desk.shadow.store.waiting() == 2
    assert desk.value("audit_dropped_total") == 3
    desk.audit()
    (record,) = desk.shadow.store.gates(mini().spec.hash)
    assert (record.queued, record.dropped, record.waiting, record.handoff_share) == (2, 3, 0, 1.0)


def test_an_audit_that_cannot_be_rebuilt_fails_and_is_counted(database):
    desk = Desk(database)
    desk.serve()
    desk.shadow._take()
    with database.write() as connection:
        connection.execute(update(AUDITS).values(recipe={"canvas": []}))
    desk.audit()
    (audit,) = audits(database)
    assert (audit.status, audit.sequence) == ("failed", None)
    assert "cannot be rebuilt" in audit.error
    assert desk.value("audit_dropped_total") == 1


# Learned gates


@pytest.fixture(scope="module")
def bundle():
    return gates.bundle(mini().spec.hash)


def test_what_a_learned_gate_saw_is_kept_for_retraining(database, bundle):
    desk = Desk(database, bundles=(bundle,))
    _, (handle,) = desk.serve(policy={"gate": {"source": "policy"}, "tail_width": 8})
    assert handle.result().handoff_step is not None
    desk.audit()
    (audit,) = audits(database)
    (record,) = desk.shadow.store.gates(mini().spec.hash)
    assert (record.gate.source, record.gate.version, record.gate.tail_width) == ("policy", "test0", 8)
    values = audit.features["values"]
    assert values["fraction"] == audit.step / 16
    assert values["masked_share"] == sum(token == mini().spec.mask_id for token in audit.recipe["canvas"]) / 16
    assert any(values[name] for name in values if name.startswith("kl_"))
    assert audit.decision["handoff_fate"] in {"handoff", "preformed"}


def test_settings_of_a_source_are_audited_apart(database, bundle):
    desk = Desk(database, bundles=(bundle,))
    for price in (None, 0.002, 1.0):
        desk.serve(policy={"gate": {"source": "value", **({"row_price": price} if price is not None else {})}})
    desk.audit()
    records = desk.shadow.store.gates(mini().spec.hash)
    assert {record.gate.settings: record.queued + record.kept for record in records} == {
        (("row_price", 0.002),): 2,
        (("row_price", 1.0),): 1,
    }


def test_a_gate_is_read_off_a_recorded_run_as_the_engine_asks_it(database, bundle):
    """The handoff that is read off a full-CFG run is the one that the same request would have had."""
    desk = Desk(database, bundles=(bundle,))
    for source in ("policy", "raw"):
        prepared, handles = desk.serve(seed=20, n=4, policy={"gate": {"source": source}, "tail_width": 8})
        recorded = desk.engine.submit_all(replace(job, gate=NeverGate(), record="gate") for job in prepared.jobs)
        desk.run()
        for job, handle, full in zip(prepared.jobs, handles, recorded, strict=True):
            step, decision = would_hand_off(prepared.choice.gate, job, full.result().trace, mini().spec.hash)
            assert step == handle.result().handoff_step is not None
            assert decision == handle.result().decision
