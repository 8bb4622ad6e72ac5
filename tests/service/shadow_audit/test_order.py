"""In which order the shadow audit takes samples in: fixed before anything is known of their texts."""

from __future__ import annotations

import pytest

from service.shadow_audit.sample import first_pass_ended
from service.storage.database import open_database
from tests.service.shadow_audit.shadowing import Desk, audits
from tests.shipped import mini


@pytest.fixture
def database(tmp_path):
    opened = open_database(f"sqlite:///{tmp_path / 'audits.db'}")
    yield opened
    opened.close()


def test_samples_of_a_gate_are_taken_in_as_they_were_admitted_whichever_ends_first(database):
    desk = Desk(database)
    first, (slow,) = desk.admit(seed=3)
    second, (left,) = desk.admit(seed=4)
    with desk.shadow.watching(first, [slow]):
        with desk.shadow.watching(second, [left]):
            while "guided" in {slow.state.phase, left.state.phase}:
                desk.engine.step()
            left.cancel()
        desk.shadow._take()
        assert (slow.done, left.done, desk.shadow.store.waiting()) == (False, True, 0)
        desk.run()
    desk.shadow._take()
    assert desk.shadow.store.waiting() == 2
    order = [desk.shadow.store.claim(mini().spec.hash).request_id for _ in range(2)]
    assert order == [first.id, second.id]


def test_a_text_that_is_repaired_is_taken_in_as_soon_as_one_that_needs_no_repair(database):
    """Repair comes after failures alone: were it waited for, pairs of failed texts would come late, and in a heap."""
    desk = Desk(database, cut=0.0)
    repair = {"selector": "restart", "max_rounds": 1}
    policy = {"preset": "reopen_repair", "gate": {"source": "constant"}, "tail_width": 8, "repair": repair}
    for seed in range(400):
        prepared, (handle,) = desk.admit(policy=policy, seed=seed)
        with desk.shadow.watching(prepared, [handle]):
            while not first_pass_ended(handle):
                desk.engine.step()
            waiting, repaired = desk.shadow.store.waiting(), not handle.repair_loop.passes[0].satisfied
            assert not (repaired and handle.done)
            desk.shadow._take()
            assert desk.shadow.store.waiting() == waiting + 1
            desk.run()
        if repaired:
            break
    else:
        raise AssertionError("no text of 400 failed at first")
    kept = next(audit for audit in audits(database) if audit.request_id == prepared.id)
    assert kept.handoff_ok is False
    assert kept.texts == {"handoff": handle.result().passes[0].text}
    desk.shadow._take()
    assert desk.shadow.store.waiting() == waiting + 1  # once
