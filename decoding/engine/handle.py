"""The caller's end of a submitted job: result, cancellation, and a bounded stream of events."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from decoding.gates.protocol import Decision
from decoding.records.events import Event
from decoding.records.ledger import Ledger
from decoding.records.trace import Trace
from decoding.repair.loop import RepairLoop
from decoding.repair.passes import DecodedText
from decoding.request.canvas import CanvasState
from decoding.request.job import Job
from decoding.request.row_estimates import most_rows

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


class DecodingError(RuntimeError):
    """A request that failed while it was decoded; `reason` is its finish reason."""

    def __init__(self, message: str, reason: FinishReason = "error") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """A finished canvas."""

    job: Job
    run: Job
    """What the text was decoded from: `job`, or the attempt of it that was kept."""
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
    passes: tuple[DecodedText, ...]
    """Every canvas that was finished and judged; empty where the policy asks for no verdict."""
    kept: DecodedText | None
    """The pass whose text this is; None without verdicts."""
    seconds: float
    """From submission to the end."""
    queue_seconds: float


class Handle:
    """One submitted job. Thread-safe; events are coalesced (a slow reader gets them late and together, never loses
    one).
    """

    _ids = itertools.count()

    def __init__(
        self,
        state: CanvasState,
        cancel: Callable[[Handle], None],
        repair_loop: RepairLoop | None = None,
        owner: Handle | None = None,
        job: Job | None = None,
    ) -> None:
        self.id = next(self._ids)
        self.state = state
        self.job = state.job if job is None else job
        """As submitted; `state.job` is the attempt or the repair round that is being decoded."""
        self.repair_loop = repair_loop
        self.owner = owner
        """The request on whose behalf this rollout runs; None for a request."""
        self.rollouts: list[Handle] = []
        self.parked = False
        """Whether it waits for a verdict or for its rollouts."""
        self.submitted = time.monotonic()
        self.first_run: float | None = None
        self.first_commit: float | None = None
        self._cancel = cancel
        self._condition = threading.Condition()
        self._events: list[Event] = []
        self._result: DecodingResult | None = None
        self._error: DecodingError | None = None

    @property
    def rows(self) -> int:
        return 0 if self.parked else self.state.rows

    @cached_property
    def estimated_rows(self) -> int:
        """As of submission; see `most_rows`."""
        return most_rows(self.job) if self.owner is None else 0  # the owner's estimate holds its rollouts

    @property
    def background(self) -> bool:
        return self.job.priority == "background"

    @property
    def done(self) -> bool:
        return self._result is not None or self._error is not None

    @property
    def error(self) -> DecodingError | None:
        return self._error

    def cancel(self) -> None:
        """Stop decoding; its rows are gone from the next step. Does nothing to a finished job."""
        self._cancel(self)

    def result(self, timeout: float | None = None) -> DecodingResult:
        """Wait for the result. Raises `DecodingError` where the job failed or was cancelled, `TimeoutError` on
        timeout.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: self.done, timeout):
                raise TimeoutError(f"job {self.id} is not finished after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None  # `done` with no error
        return self._result

    def take_events(self) -> list[Event]:
        """Events since the last call; never waits."""
        with self._condition:
            events, self._events = self._events, []
        return events

    def stream(self) -> Iterator[Event]:
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

    def publish(self, event: Event) -> None:
        """Engine only: append an event."""
        with self._condition:
            self._events.append(event)
            self._condition.notify_all()

    def finish(self, result: DecodingResult | DecodingError) -> None:
        """Engine only: settle the handle, once."""
        with self._condition:
            if self.done:
                return
            if isinstance(result, DecodingError):
                self._error = result
                self.state.kept = None  # else keys and values live as long as this handle is held
            else:
                self._result = result
            self._condition.notify_all()


def result_of(handle: Handle) -> DecodingResult:
    """The result of a finished state, or of the best of a request's passes."""
    now, repair_loop = time.monotonic(), handle.repair_loop
    best = repair_loop.best if repair_loop is not None else None
    state = best.state if best is not None else handle.state
    gated = repair_loop.first_of(best).state if repair_loop is not None and best is not None else state
    content = state.content()
    return DecodingResult(
        job=handle.job,
        run=gated.job,
        tokens=tuple(state.tokens.tolist()),
        content=tuple(content),
        finish_reason="stop" if state.job.template or len(content) < state.job.gen_length else "length",
        steps=state.step,
        ledger=state.ledger,
        trace=state.trace if repair_loop is None else repair_loop.trace(),
        handoff_step=gated.handoff_step,
        handoff_masked=gated.handoff_masked,
        decision=gated.decision,
        fallback_reason=gated.fallback_reason,
        approximate=state.approximate or gated.approximate,
        passes=() if repair_loop is None else tuple(repair_loop.passes),
        kept=best,
        seconds=now - handle.submitted,
        queue_seconds=(handle.first_run or now) - handle.submitted,
    )
