"""The caller's end of a submitted job: result, cancellation, and a bounded stream of events."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from decoding.gating import Decision
from decoding.job import Job
from decoding.ledger import Ledger
from decoding.request import CanvasState, StepEvent
from decoding.trace import Trace

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


class DecodingError(RuntimeError):
    """A request that failed while it was decoded; `reason` is its finish reason."""

    def __init__(self, message: str, reason: FinishReason = "error") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished canvas."""

    job: Job
    tokens: tuple[int, ...]
    content: tuple[int, ...]
    """Token ids up to the first end-of-text."""
    finish_reason: FinishReason
    """"stop" where an end-of-text was written, else "length"."""
    steps: int
    """Index of the step after the last one."""
    ledger: Ledger
    trace: Trace
    handoff_step: int | None
    handoff_masked: int | None
    """Masked positions at the handoff."""
    decision: Decision | None
    """The gate's last decision."""
    fallback_reason: str | None
    approximate: bool
    """Whether some step reused keys and values (`tail_reuse`), so that exact decoding may give another text."""
    seconds: float
    """From submission to the end."""
    queue_seconds: float


class Handle:
    """One submitted job. Thread-safe; events are coalesced (a slow reader gets them late and together, never loses
    one).
    """

    _ids = itertools.count()

    def __init__(self, state: CanvasState, cancel: Callable[[Handle], None]) -> None:
        self.id = next(self._ids)
        self.state = state
        self.submitted = time.monotonic()
        self.first_run: float | None = None
        self.first_commit: float | None = None
        self._cancel = cancel
        self._condition = threading.Condition()
        self._events: list[StepEvent] = []
        self._outcome: Outcome | None = None
        self._error: DecodingError | None = None

    @property
    def job(self) -> Job:
        return self.state.job

    @property
    def rows(self) -> int:
        return self.state.rows

    @cached_property
    def estimated_rows(self) -> int:
        """As of submission; see `Job.estimated_rows`."""
        return self.job.estimated_rows

    @property
    def background(self) -> bool:
        return self.job.priority == "background"

    @property
    def done(self) -> bool:
        return self._outcome is not None or self._error is not None

    @property
    def error(self) -> DecodingError | None:
        return self._error

    def cancel(self) -> None:
        """Stop decoding; its rows are gone from the next step. Does nothing to a finished job."""
        self._cancel(self)

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait for the outcome. Raises `DecodingError` where the job failed or was cancelled, `TimeoutError` on
        timeout.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: self.done, timeout):
                raise TimeoutError(f"job {self.id} is not finished after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._outcome is not None  # `done` with no error
        return self._outcome

    def take_events(self) -> list[StepEvent]:
        """Events since the last call; never waits."""
        with self._condition:
            events, self._events = self._events, []
        return events

    def stream(self) -> Iterator[StepEvent]:
        """Events as they come, to the end; then raises `DecodingError` where the job failed."""
        while True:
            with self._condition:
                self._condition.wait_for(lambda: bool(self._events) or self.done)
            events = self.take_events()
            yield from events
            if self.done and not events:
                break
        if self._error is not None:
            raise self._error

    def publish(self, event: StepEvent) -> None:
        """Engine only: append an event."""
        with self._condition:
            self._events.append(event)
            self._condition.notify_all()

    def finish(self, result: Outcome | DecodingError) -> None:
        """Engine only: settle the handle, once."""
        with self._condition:
            if self.done:
                return
            if isinstance(result, DecodingError):
                self._error = result
            else:
                self._outcome = result
            self._condition.notify_all()


def outcome_of(handle: Handle) -> Outcome:
    """The outcome of a finished state."""
    state, now = handle.state, time.monotonic()
    content = state.content()
    return Outcome(
        job=state.job,
        tokens=tuple(state.tokens.tolist()),
        content=tuple(content),
        finish_reason="stop" if len(content) < state.job.gen_length else "length",
        steps=state.step,
        ledger=state.ledger,
        trace=state.trace,
        handoff_step=state.handoff_step,
        handoff_masked=state.handoff_masked,
        decision=state.decision,
        fallback_reason=state.fallback_reason,
        approximate=state.approximate,
        seconds=now - handle.submitted,
        queue_seconds=(handle.first_run or now) - handle.submitted,
    )
