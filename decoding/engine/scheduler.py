"""Which requests run in the next step. Knows rows, priorities and waiting times; never sees a tensor.

Requests only have work left: guided and base steps, fresh and half-done canvases share one step. Within a class the
earliest arrival goes first (every request is finite, so none waits forever); interactive requests go before background
ones, which get a reserved share of a step once they have been passed over for `patience` steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Schedulable(Protocol):
    """What the scheduler asks of a request."""

    @property
    def rows(self) -> int:
        """Rows of its next step; 0 while it waits for something else."""
        ...

    @property
    def estimated_rows(self) -> int:
        """Upper estimate of all its rows, as of its arrival."""
        ...

    @property
    def background(self) -> bool: ...


R = TypeVar("R", bound=Schedulable)


class QueueFullError(RuntimeError):
    """Too much work is queued; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class Lane(Generic[R]):
    """The requests of one class in order of arrival, and the rows they were estimated at."""

    estimates: dict[R, int] = field(default_factory=dict)
    rows: int = 0
    passed_over: int = 0
    """Steps since this class was last served while it had work."""

    def add(self, request: R) -> None:
        self.estimates[request] = request.estimated_rows
        self.rows += self.estimates[request]

    def remove(self, request: R) -> bool:
        rows = self.estimates.pop(request, None)
        self.rows -= rows or 0
        return rows is not None


@dataclass(slots=True)
class Scheduler(Generic[R]):
    """Row budget a step, two classes with a reserved share for the lower one, admission by estimated rows.

    `max_rows` is the row budget of a step (at least 2, so that one guided step fits). `max_queued_rows` bounds the
    estimated rows of each class that are admitted and not finished; a request of any size enters an empty class.
    `background_rows` is what background work gets at least once in every `patience` + 1 steps. `background_beside` is
    the most that it gets of a step which also serves interactive requests (None: whatever they leave); where rows take
    time of their own, as on a CPU, it bounds how much background work slows them down.
    """

    max_rows: int = 64
    max_queued_rows: int = 65_536
    patience: int = 8
    background_rows: int = 2
    background_beside: int | None = None
    rows_per_second: float = 100.0
    """Running estimate of throughput, for `retry_after`."""
    interactive: Lane[R] = field(default_factory=Lane)
    background: Lane[R] = field(default_factory=Lane)

    def __post_init__(self) -> None:
        if self.max_rows < 2 or self.patience < 1 or not 2 <= self.background_rows <= self.max_rows:
            raise ValueError("max_rows must be at least 2, patience at least 1, background_rows from 2 to max_rows")
        if self.background_beside is not None and self.background_beside < 2:
            raise ValueError("background_beside must be at least 2, so that one guided step fits")

    def _lane(self, request: R) -> Lane[R]:
        return self.background if request.background else self.interactive

    def check_admission(self, requests: Iterable[R]) -> None:
        """Raise `QueueFullError` unless all `requests` may enter together."""
        wanted = {False: 0, True: 0}
        for request in requests:
            wanted[request.background] += request.estimated_rows
        for lane, rows in ((self.interactive, wanted[False]), (self.background, wanted[True])):
            excess = lane.rows + rows - self.max_queued_rows
            if rows and lane.rows and excess > 0:
                raise QueueFullError(
                    f"{lane.rows} forward evaluations are queued already (limit {self.max_queued_rows})",
                    retry_after=max(1.0, excess / max(1.0, self.rows_per_second)),
                )

    def add(self, request: R) -> None:
        """Queue a request; admission is `check_admission`'s business."""
        self._lane(request).add(request)

    def remove(self, request: R) -> None:
        """Forget a finished, failed or cancelled request: its rows are free in the very next step."""
        if not self.interactive.remove(request):
            self.background.remove(request)

    def observe_speed(self, rows: int, seconds: float) -> None:
        """Take a step that ran into the estimate of throughput."""
        self.rows_per_second = 0.9 * self.rows_per_second + 0.1 * rows / max(seconds, 1e-6)

    def plan(self) -> list[R]:
        """The requests of the next step: at most `max_rows` rows, none twice."""
        reserve = (
            self.background_rows if self.background.estimates and self.background.passed_over >= self.patience else 0
        )
        chosen = list(self._fill(self.background.estimates, reserve))
        background_first = set(chosen)
        room = self.max_rows - sum(request.rows for request in chosen)
        for lane in (self.interactive, self.background):
            if lane is self.background and self.interactive.estimates and self.background_beside is not None:
                room = min(room, max(0, self.background_beside - sum(request.rows for request in background_first)))
            picked = list(self._fill((r for r in lane.estimates if r not in background_first), room))
            room -= sum(request.rows for request in picked)
            chosen += picked
        for lane in (self.interactive, self.background):
            served = any(request in lane.estimates for request in chosen)
            lane.passed_over = 0 if served or not lane.estimates else lane.passed_over + 1
        return chosen

    @staticmethod
    def _fill(requests: Iterable[R], room: int) -> Iterator[R]:
        """Requests in order, each that still fits."""
        for request in requests:
            if room <= 0:
                return
            if 0 < request.rows <= room:
                room -= request.rows
                yield request

    @property
    def runnable(self) -> bool:
        """Whether some request has a step to run (others wait for a verdict)."""
        return any(request.rows for lane in (self.interactive, self.background) for request in lane.estimates)

    @property
    def idle(self) -> bool:
        return not self.interactive.estimates and not self.background.estimates

    @property
    def queued(self) -> int:
        """Requests admitted and not finished."""
        return len(self.interactive.estimates) + len(self.background.estimates)

    @property
    def queued_rows(self) -> int:
        """Their estimated rows, as of arrival."""
        return self.interactive.rows + self.background.rows

    def requests(self) -> list[R]:
        """Every request known, interactive first, by arrival."""
        return [*self.interactive.estimates, *self.background.estimates]
