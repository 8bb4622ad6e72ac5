"""Events of a running request, for those who follow it: each step, and each reopening by repair."""

from __future__ import annotations

from dataclasses import dataclass

from decoding.records.trace import Phase


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What one step did to a canvas."""

    step: int
    phase: Phase
    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]
    filled: tuple[int, ...]
    masked: int
    """Masked positions before the step."""
    mending: bool = False
    """Whether the step opened `positions` again to look at them in the finished text."""


@dataclass(frozen=True, slots=True)
class ReopenEvent:
    """A finished text failed its constraint: the request goes on from `canvas`."""

    attempt: int
    """0 for the first policy tried; a further attempt begins with an empty canvas."""
    round: int
    """Repair round within the attempt; 0 where a further attempt begins."""
    positions: tuple[int, ...]
    """Positions that were opened again; behind them the tail may have moved (see `repair.tail`)."""
    canvas: tuple[int, ...]
    """Token ids [L] before the next step, MASK where undecided."""
    score: float
    """Graded score of the best text so far."""


Event = StepEvent | ReopenEvent
