"""What the engine reports to metrics: each step with its rows and seconds, the gates' decisions, the end of a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.engine.handle import Handle
from decoding.engine.runner import RunnerCounts
from decoding.gates.protocol import Decision, Gate


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
    """Of which in the model (see `RunnerCounts.model_seconds`); the rest is sampling, statistics and bookkeeping."""
    handles: Sequence[Handle]
    """The requests that took part, some of them ended by now; their ledgers hold the step's rows."""


class StepMeter:
    """Made before the step of `plan` runs; `report` tells what it did."""

    def __init__(self, counts: RunnerCounts, plan: Sequence[Handle], began: float) -> None:
        self._counts, self._plan, self._began = counts, plan, began
        self._rows, self._padding, self._in_model = counts.total, counts.padding_rows, counts.model_seconds
        self._phases = [handle.state.phase for handle in plan]  # a gate may change them within the step

    def report(self, committed: int) -> StepReport:
        """The step as it stands; rollouts are reported as the request that they run for, whose ledger holds them."""
        counts = self._counts
        return StepReport(
            rows=counts.total - self._rows,
            padding_rows=counts.padding_rows - self._padding,
            guided=self._phases.count("guided"),
            base=self._phases.count("base"),
            committed=committed,
            seconds=time.monotonic() - self._began,
            model_seconds=counts.model_seconds - self._in_model,
            handles=list(dict.fromkeys(handle.owner or handle for handle in self._plan)),
        )


class Observer(Protocol):
    """Told of everything that metrics count, on the engine's thread (`on_end` of a cancelled job: on the canceller's).

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
