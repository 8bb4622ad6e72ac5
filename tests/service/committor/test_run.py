"""Continuations that end at any moment: none is lost, and one that is missing is run again."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace

import pytest

from service.committor.run import JobRun
from service.committor.tables import RolloutRecord


class SuddenHandle:
    """A continuation that ends between two looks at it: when it has been looked at `looks` times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def done(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def result(self, timeout: float | None = None) -> SimpleNamespace:
        return SimpleNamespace(content=(), ledger=SimpleNamespace(total=3))

    def cancel(self) -> None:
        raise AssertionError("nothing is cancelled here")


def job_run(handles: list[SuddenHandle]) -> JobRun:
    """A run without a model whose engine hands out `handles`."""
    run = JobRun.__new__(JobRun)
    run.job = SimpleNamespace(id="com-1")
    run.engine = SimpleNamespace(submit_all=lambda jobs: [handles.pop(0) for _ in jobs])
    run.store = SimpleNamespace(save_rollouts=lambda job, rollouts: None)
    run.stop, run.in_flight, run.on_rollouts = threading.Event(), 4, lambda count: None
    run.judge = lambda content: SimpleNamespace(satisfied=True, score=1.0)
    return run


@pytest.mark.parametrize("looks", range(6))
def test_a_continuation_that_ends_between_two_looks_is_kept(looks):
    number = 12
    run = job_run([SuddenHandle((looks + index) % 5) for index in range(number)])
    waiting = deque((RolloutRecord(0, "base", index, False, 0.0, 0), None) for index in range(number))
    kept = run._continue(waiting)
    assert sorted(record.rollout for record in kept) == list(range(number))


def test_missing_continuations_are_run_again(monkeypatch):
    """However one was lost: a job whose rows are not all there would fail for good."""
    run = job_run([])
    records = [RolloutRecord(0, "base", index, True, 1.0, 1) for index in range(3)]
    run.job = SimpleNamespace(id="com-1", recording={"states": [], "rows": 0})
    run.store = SimpleNamespace(rollouts=lambda job: [])
    run.plan = SimpleNamespace(job=None)
    asked = []

    def missing(states, kept):
        return deque((record, None) for record in records if record not in kept)

    def lossy(waiting):
        asked.append(len(waiting))
        return [record for record, _ in list(waiting)[: 2 if len(asked) == 1 else None]]

    monkeypatch.setattr(run, "_missing", missing)
    monkeypatch.setattr(run, "_continue", lossy)
    assert list(run.run().rollouts) == records
    assert asked == [3, 1]
