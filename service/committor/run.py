"""Runs one claimed committor job on the calling thread: the recorded run, then the continuations of its states.

Progress is saved once a second, so that the next server to claim the job goes on from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from decoding.engine.engine import Engine, EngineClosedError
from decoding.engine.handle import Handle
from decoding.engine.scheduler import QueueFullError
from decoding.models.protocol import DenoisingModel
from decoding.request.job import Job
from gate_models.committor.committor import State, TextJudge, cell_jobs, judge_of
from gate_models.committor.horizon import freeze_states, record_job
from service.committor.plan import LABEL, CommittorPlan
from service.committor.store import JobStore
from service.committor.tables import JobRecord, RolloutRecord
from service.storage.errors import DatabaseError

logger = logging.getLogger(__name__)
T = TypeVar("T")

SAVE_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 0.1
"""How long to look at one continuation before looking at the others, and at whether to stop."""
RETRY_SECONDS: Final = 1.0


NOTHING_LEFT: Final = (
    "the guided run had ended before the point that was asked for: steps that commit several positions (guided_width) "
    "and ends of text (eos_fill) shorten it; ask for an earlier fraction"
)
"""Error of a job that its request is at fault for, which only the run can tell."""


class NothingToMeasureError(ValueError):
    """The run leaves no state to continue from."""

    def __init__(self) -> None:
        super().__init__(NOTHING_LEFT)


class StoppedError(RuntimeError):
    """The job must not go on here: this server shuts down, or its caller has cancelled it."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A state to continue from: what the database keeps of a recorded run at one point."""

    step: int
    canvas: tuple[int, ...]
    place: tuple[int, int, bool] | None

    def state(self, job: Job) -> State:
        return State(job, self.canvas, self.step, f"{LABEL}|s{self.step}", self.place)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Everything measured."""

    states: tuple[RecordedRun, ...]
    rollouts: tuple[RolloutRecord, ...]
    recorded_rows: int


@dataclass(eq=False)
class JobRun:
    """`in_flight` continuations are in the engine at a time; `stop` ends the run with `StoppedError`."""

    job: JobRecord
    plan: CommittorPlan
    model: DenoisingModel
    engine: Engine
    store: JobStore
    stop: threading.Event
    in_flight: int
    on_rollouts: Callable[[int], None]
    """Called with the number of continuations that were saved."""

    @cached_property
    def judge(self) -> TextJudge:
        """Judges one continuation."""
        return judge_of(self.model, self.plan.job.constraint or {}, self.plan.job.template)

    def run(self) -> MeasuredRun:
        """Everything measured.

        Raises `StoppedError`, `LeaseLostError`, `NothingToMeasureError`, or `DecodingError` where the model fails.
        """
        recording = self.job.recording or self._record()
        states = tuple(
            RecordedRun(s["step"], tuple(s["canvas"]), None if s["place"] is None else tuple(s["place"]))
            for s in recording["states"]
        )
        kept = self.lasting(lambda: self.store.rollouts(self.job))
        while waiting := self._missing(states, kept):
            kept += self._continue(waiting)
        return MeasuredRun(states, tuple(kept), int(recording["rows"]))

    def _missing(
        self, states: Sequence[RecordedRun], kept: Sequence[RolloutRecord]
    ) -> deque[tuple[RolloutRecord, Job]]:
        """The continuations that are not kept yet, and what each is decoded from."""
        done = {(rollout.step, rollout.arm, rollout.rollout) for rollout in kept}
        waiting: deque[tuple[RolloutRecord, Job]] = deque()
        for recorded in states:
            for arm in self.plan.arms:
                for index, job in enumerate(cell_jobs(recorded.state(self.plan.job), arm, self.plan.count)):
                    if (recorded.step, arm.name, index) not in done:
                        waiting.append((RolloutRecord(recorded.step, arm.name, index, False, 0.0, 0), job))
        return waiting

    def lasting(self, call: Callable[[], T]) -> T:
        """`call`, again and again while the database cannot be reached."""
        while True:
            try:
                return call()
            except DatabaseError as error:
                logger.warning("job %s waits: %s", self.job.id, error)
                if self.stop.wait(RETRY_SECONDS):
                    raise StoppedError from error

    def _record(self) -> dict[str, Any]:
        """The guided run whose states are continued, or the state that was given."""
        plan, mask, rows = self.plan, self.model.spec.mask_id, 0
        if not plan.recorded:
            canvas = plan.start or plan.job.empty(mask)
            states = [RecordedRun(point.step, canvas, None) for point in plan.points]
        else:
            job = replace(record_job(plan.job, LABEL), purpose="rollout", priority="background", record="commits")
            outcome = self._wait(self._submit([job])[0]).result()
            frozen = freeze_states(outcome, LABEL, mask, plan.points)
            if not frozen:
                raise NothingToMeasureError
            states = [RecordedRun(each.point.step, each.state.canvas, each.state.place) for each in frozen]
            rows = outcome.ledger.total
        recording = {"states": [asdict(state) for state in states], "rows": rows}
        self.lasting(lambda: self.store.save_recording(self.job, recording, rows))
        return recording

    def _continue(self, waiting: deque[tuple[RolloutRecord, Job]]) -> list[RolloutRecord]:
        """Run the continuations, a bounded number at a time, and keep them as they end."""
        flying: deque[tuple[RolloutRecord, Handle]] = deque()
        everything: list[RolloutRecord] = []
        unsaved: list[RolloutRecord] = []
        saved = time.monotonic()
        try:
            while waiting or flying:
                if room := min(len(waiting), self.in_flight - len(flying)):
                    batch = [waiting.popleft() for _ in range(room)]
                    handles = self._submit([job for _, job in batch])
                    flying += zip([record for record, _ in batch], handles, strict=True)
                self._wait(flying[0][1], WAIT_SECONDS)
                for _ in range(len(flying)):  # each is asked once: one may end at any moment
                    record, handle = flying.popleft()
                    if handle.done:
                        unsaved.append(self._judged(record, handle))
                    else:
                        flying.append((record, handle))
                if unsaved and (time.monotonic() - saved > SAVE_SECONDS or not (waiting or flying)):
                    everything += self._save(unsaved)
                    unsaved, saved = [], time.monotonic()
        except StoppedError:
            if unsaved:
                self.store.save_rollouts(self.job, unsaved)
                self.on_rollouts(len(unsaved))
            raise
        finally:
            for _, handle in flying:
                handle.cancel()
        return everything

    def _save(self, rollouts: list[RolloutRecord]) -> list[RolloutRecord]:
        self.lasting(lambda: self.store.save_rollouts(self.job, rollouts))
        self.on_rollouts(len(rollouts))
        return rollouts

    def _judged(self, record: RolloutRecord, handle: Handle) -> RolloutRecord:
        outcome = handle.result()
        verdict = self.judge(outcome.content)
        return replace(record, satisfied=verdict.satisfied, score=verdict.score, rows=outcome.ledger.total)

    def _submit(self, jobs: list[Job]) -> list[Handle]:
        """Queue in the engine as soon as it has room."""
        while True:
            if self.stop.is_set():
                raise StoppedError
            try:
                return self.engine.submit_all(jobs)
            except QueueFullError:
                self.stop.wait(WAIT_SECONDS)
            except EngineClosedError as error:
                raise StoppedError from error

    def _wait(self, handle: Handle, seconds: float | None = None) -> Handle:
        """Wait for a continuation (None: until it ends). Raises `StoppedError` once `stop` is set."""
        began = time.monotonic()
        while not handle.done and (seconds is None or time.monotonic() - began < seconds):
            if self.stop.is_set():
                handle.cancel()
                raise StoppedError
            try:
                handle.result(WAIT_SECONDS)
            except TimeoutError:
                continue
        if self.stop.is_set() and not handle.done:
            raise StoppedError
        return handle
