"""What metrics are told by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.engine.handle import Handle
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
