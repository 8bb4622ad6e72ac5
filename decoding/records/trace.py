"""What is recorded of a run: per-step statistics for gates, and enough to rebuild any prefix without the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from decoding.sampling.block_schedule import Place
from decoding.sampling.stability import NO_TAIL, TailState

Phase = Literal["guided", "base"]
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, 10/50/90 % quantiles and minimum of a statistic over a set of positions; zeros where the set is empty."""

    count: int = 0
    mean: float = 0.0
    q10: float = 0.0
    q50: float = 0.0
    q90: float = 0.0
    minimum: float = 0.0

    @staticmethod
    def of(values: NDArray[np.float64]) -> Summary:
        if values.size == 0:
            return Summary()
        q10, q50, q90 = np.quantile(values, QUANTILES)
        return Summary(int(values.size), float(values.mean()), float(q10), float(q50), float(q90), float(values.min()))


@dataclass(frozen=True, slots=True)
class StepStats:
    """One denoising step of one request. Positions are response-relative; probabilities are untempered.

    `masked_*` cover the candidates of the active block before the step's commits, `committed_*` every position
    committed so far (this step included), at the values it had when it was committed.
    """

    step: int
    phase: Phase
    round: int
    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]
    """Guided probability of each committed token."""
    masked: int
    """Masked positions of the whole canvas before the step."""
    place: Place = (0, 0, False)
    """Where the schedule stood before the step: block, steps left, whether an end-of-text has filled positions."""
    filled: tuple[int, ...] = ()
    """Positions filled with end-of-text by `eos_fill` after the commits."""
    masked_confidence: Summary | None = None
    masked_entropy: Summary | None = None
    committed_confidence: Summary | None = None
    committed_entropy: Summary | None = None
    kl: Summary | None = None
    """KL(guided || conditional) over the masked positions; None in base steps."""
    total_variation_max: float | None = None
    total_variation_mean: float | None = None
    total_variation_left: float | None = None
    """Largest total variation over the positions still masked after the step; None in base steps and when none is left.
    """
    word_open: bool = False
    """Whether a guided step leaves a word half-written, as far as the model says which tokens continue one."""
    variation: tuple[float, ...] = ()
    """Total variation between guided and conditional distribution at each committed position; empty in base steps."""
    boost_max: float | None = None
    argmax_positions: tuple[int, ...] = ()
    argmax_tokens: tuple[int, ...] = ()
    """The argmax fill of the masked positions, where the trace asks for it."""
    mending: bool = False
    """Whether the step opened `positions` again, in a text that was finished, to look at them once more."""
    tail: TailState = NO_TAIL
    """What the tail carried into the step beside the canvas, where its rule remembers earlier steps."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; without `tail`, which serves to go on from the step."""
        out: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            if name == "tail":
                continue
            value = getattr(self, name)
            if isinstance(value, Summary):
                value = {f: getattr(value, f) for f in Summary.__dataclass_fields__}
            out[name] = list(value) if isinstance(value, tuple) else value
        return out


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a run went on from another canvas than its last step's: a repair round, or a further attempt."""

    index: int
    """Steps recorded before it."""
    canvas: tuple[int, ...]
    """Token ids [L], MASK where undecided."""
    reopened: tuple[int, ...]
    """Positions that were opened again."""
    attempt: int
    round: int


@dataclass(slots=True)
class Trace:
    """The steps of one request and the state it started from."""

    start: tuple[int, ...]
    """Canvas before the first step (MASK where undecided)."""
    end_id: int
    start_step: int = 0
    steps: list[StepStats] = field(default_factory=list)
    resumed: list[Resumption] = field(default_factory=list)

    def prefix(self, steps: int, mask_id: int) -> NDArray[np.int64]:
        """Canvas [L] after the first `steps` recorded steps, rebuilt without the model."""
        if not 0 <= steps <= len(self.steps):
            raise ValueError(f"a prefix of {steps} steps was asked of a trace of {len(self.steps)}")
        canvas = np.array(self.start, dtype=np.int64)
        resumed = {resumption.index: resumption.canvas for resumption in self.resumed}
        for index, stats in enumerate(self.steps[:steps]):
            canvas[:] = resumed.get(index, canvas)
            canvas[list(stats.positions)] = stats.tokens
            canvas[list(stats.filled)] = self.end_id
        return canvas

    def place(self, steps: int) -> Place | None:
        """Where the schedule stood after the first `steps` recorded steps; None at the end of the trace."""
        return self.steps[steps].place if steps < len(self.steps) else None

    def tail(self, steps: int) -> TailState:
        """What the tail carried after the first `steps` recorded steps; nothing at the end of the trace."""
        return self.steps[steps].tail if steps < len(self.steps) else NO_TAIL

    def argmax_fill(self, steps: int, mask_id: int) -> NDArray[np.int64]:
        """The canvas before step `steps`, its masks filled with that step's argmax (needs a trace recorded with
        `fill`).
        """
        canvas = self.prefix(steps, mask_id)
        stats = self.steps[steps]
        canvas[list(stats.argmax_positions)] = stats.argmax_tokens
        return canvas

    def commit_order(self) -> tuple[int, ...]:
        """Positions in the order in which they were committed (last commit of each)."""
        order: dict[int, None] = {}
        for stats in self.steps:
            for position in (*stats.positions, *stats.filled):
                order.pop(position, None)
                order[position] = None
        return tuple(order)
