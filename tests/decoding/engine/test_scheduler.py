"""Contract 8: step-level batching without torch, without starvation; admission by estimated rows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.engine.scheduler import QueueFullError, Scheduler


@dataclass(eq=False)
class Work:
    """`guided` two-row steps, then `base` one-row steps."""

    guided: int
    base: int
    background: bool = False

    @property
    def rows(self) -> int:
        return 2 if self.guided else 1

    @property
    def estimated_rows(self) -> int:
        return 2 * self.guided + self.base

    @property
    def done(self) -> bool:
        return not self.guided and not self.base

    def advance(self) -> None:
        if self.guided:
            self.guided -= 1
        else:
            self.base -= 1


works = st.builds(Work, st.integers(0, 6), st.integers(1, 6), st.booleans())


def serve(scheduler: Scheduler[Work], plan: list[Work]) -> None:
    for work in plan:
        work.advance()
        if work.done:
            scheduler.remove(work)


def test_the_scheduler_never_imports_torch() -> None:
    code = "import sys, decoding.engine.scheduler; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(deadline=None)
@given(st.lists(works, max_size=40), st.integers(2, 16))
def test_plans_fit_the_budget_repeat_nobody_and_finish_everything(work: list[Work], max_rows: int) -> None:
    scheduler: Scheduler[Work] = Scheduler(max_rows=max_rows)
    total = sum(w.estimated_rows for w in work)
    for w in work:
        scheduler.add(w)
    ran = 0
    while not scheduler.idle:
        plan = scheduler.plan()
        rows = sum(w.rows for w in plan)
        assert 0 < rows <= max_rows
        assert len({id(w) for w in plan}) == len(plan)
        ran += rows
        serve(scheduler, plan)
    assert ran == total
    assert scheduler.queued_rows == 0


@given(st.lists(works, min_size=1, max_size=40), st.integers(2, 16))
def test_no_row_is_left_idle_that_somebody_could_use(work: list[Work], max_rows: int) -> None:
    scheduler: Scheduler[Work] = Scheduler(max_rows=max_rows)
    for w in work:
        scheduler.add(w)
    plan = scheduler.plan()
    room = max_rows - sum(w.rows for w in plan)
    assert all(w.rows > room for w in work if w not in plan)


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 10), st.integers(1, 8), st.data())
def test_background_work_finishes_under_endless_interactive_load(
    max_rows: int, patience: int, tasks: int, data: st.DataObject
) -> None:
    """At least `background_rows` in every `patience` + 1 steps, however many interactive requests keep arriving."""
    scheduler: Scheduler[Work] = Scheduler(max_rows=max_rows, patience=patience, background_rows=2)
    background = [
        Work(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3)), background=True) for _ in range(tasks)
    ]
    steps_needed = sum(w.guided + w.base for w in background)
    for w in background:
        scheduler.add(w)
    bound = (patience + 1) * (steps_needed + 1)
    for _ in range(bound):
        while scheduler.interactive.rows < 4 * max_rows:
            scheduler.add(Work(data.draw(st.integers(0, 2)), 2))
        serve(scheduler, scheduler.plan())
        if not scheduler.background.estimates:
            return
    pytest.fail(f"background work was not finished after {bound} steps")


@given(st.lists(works, min_size=2, max_size=30))
def test_interactive_goes_before_background_and_first_come_first_served(work: list[Work]) -> None:
    scheduler: Scheduler[Work] = Scheduler(max_rows=2)
    for w in work:
        scheduler.add(w)
    (first, *_) = scheduler.plan()
    expected = min(work, key=lambda w: (w.background, work.index(w)))
    assert first is expected


@settings(deadline=None)
@given(st.lists(works, min_size=1, max_size=30), st.integers(4, 16), st.integers(2, 8))
def test_background_work_beside_interactive_work_is_bounded(work: list[Work], max_rows: int, beside: int) -> None:
    scheduler: Scheduler[Work] = Scheduler(max_rows=max_rows, background_beside=beside)
    for w in work:
        scheduler.add(w)
    while not scheduler.idle:
        interactive = bool(scheduler.interactive.estimates)
        plan = scheduler.plan()
        rows = sum(w.rows for w in plan if w.background)
        if interactive:
            assert rows <= beside
        else:  # alone, it gets the whole step
            room = max_rows - rows
            assert all(w.rows > room for w in scheduler.background.estimates if w not in plan)
        assert plan
        serve(scheduler, plan)


def test_a_handoff_frees_a_row_in_the_very_next_step() -> None:
    scheduler: Scheduler[Work] = Scheduler(max_rows=4)
    first, second, third = Work(1, 5), Work(9, 1), Work(9, 1)
    for w in (first, second, third):
        scheduler.add(w)
    plan = scheduler.plan()
    assert plan == [first, second]
    serve(scheduler, plan)
    fourth = Work(0, 1)
    scheduler.add(fourth)
    assert scheduler.plan() == [first, second, fourth]
    scheduler.remove(second)
    assert scheduler.plan() == [first, third, fourth]


def test_admission_by_estimated_rows() -> None:
    scheduler: Scheduler[Work] = Scheduler(max_queued_rows=100, rows_per_second=10.0)
    huge = Work(100, 100)
    scheduler.check_admission([huge])  # anything enters an empty queue
    scheduler.add(huge)
    with pytest.raises(QueueFullError) as caught:
        scheduler.check_admission([Work(1, 1)])
    assert caught.value.retry_after == pytest.approx(20.3)
    scheduler.check_admission([Work(10, 10, background=True)])  # classes do not block each other
    scheduler.remove(huge)
    scheduler.remove(huge)
    assert scheduler.queued_rows == 0
    scheduler.check_admission([Work(1, 1)])


@pytest.mark.parametrize(
    "bad", [{"max_rows": 1}, {"patience": 0}, {"background_rows": 1}, {"background_rows": 65}, {"background_beside": 1}]
)
def test_impossible_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Scheduler(**bad)
