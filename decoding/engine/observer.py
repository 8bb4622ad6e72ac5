"""What the engine reports to metrics: each step with its rows and seconds, the gates' decisions, the end of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.engine.handle import DecodingError, Handle
from decoding.engine.runner import RunnerCounts
from decoding.gates.protocol import Decision, Gate
from decoding.repair.loop import Action


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one engine step did, for metrics."""

    rows: int
    padding_rows: int
    guided: int
    """Requests that took a guided step."""
    base: int
    committed: int
    """Positions committed or filled."""
    seconds: float
    model_seconds: float
    """The part spent in the model (see `RunnerCounts.model_seconds`); the rest is sampling and bookkeeping."""
    handles: Sequence[Handle]
    """The requests that took part, some of them ended by now; their ledgers hold the step's rows."""


@dataclass(frozen=True, slots=True)
class GateReport:
    """One call of a gate: what it decided about the requests that were due, and how long it took."""

    gate: Gate
    decisions: Sequence[tuple[Handle, Decision]]
    seconds: float


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """What becomes of a request that waited for the verdict on its text, or for its rollouts."""

    handle: Handle
    action: Action | DecodingError
    """An error where the text could not be judged."""


Notify = Callable[[GateReport | JudgeReport], None]
"""How gates, the judge thread and rollouts report to the engine."""


class StepMeter:
    """Measures one engine step: made where it begins, given the plan, asked for the report at the end."""

    def __init__(self, counts: RunnerCounts) -> None:
        self.began = time.monotonic()
        self.plan: Sequence[Handle] = ()
        self.committed = 0
        """Positions committed or filled."""
        self._counts = counts

    def start(self, plan: Sequence[Handle]) -> None:
        """Take in what is about to run: gates may change a request's phase within the step."""
        counts = self._counts
        self.plan, self._phases = plan, [handle.state.phase for handle in plan]
        self._rows, self._padding, self._in_model = counts.total, counts.padding_rows, counts.model_seconds

    def report(self) -> StepReport:
        """The step as it stands; a rollout counts as the request that it runs for, whose ledger holds its rows."""
        counts = self._counts
        return StepReport(
            rows=counts.total - self._rows,
            padding_rows=counts.padding_rows - self._padding,
            guided=self._phases.count("guided"),
            base=self._phases.count("base"),
            committed=self.committed,
            seconds=time.monotonic() - self.began,
            model_seconds=counts.model_seconds - self._in_model,
            handles=list(dict.fromkeys(handle.owner or handle for handle in self.plan)),
        )


class Observer(Protocol):
    """Gets everything that metrics count, on the engine's thread (`on_end` of a cancelled job: on the canceller's).

    Must be quick; an exception is logged and ignored.
    """

    def on_step(self, report: StepReport) -> None: ...

    def on_gate(self, gate: Gate, decisions: Sequence[tuple[Handle, Decision]], seconds: float) -> None: ...

    def on_end(self, handle: Handle) -> None:
        """A job finished, failed or was cancelled.

        Its ledger is final, but for a job cancelled in the middle of a step: that step's rows are there at `on_step`.
        """
        ...


class NullObserver:
    """Counts nothing."""

    def on_step(self, report: StepReport) -> None:
        pass

    def on_gate(self, gate: Gate, decisions: Sequence[tuple[Handle, Decision]], seconds: float) -> None:
        pass

    def on_end(self, handle: Handle) -> None:
        pass
