"""What is known of each canvas that a request has finished: its text, its verdict, and how sure each commit was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoding.constraints.base.constraint import Constraint
from decoding.models.protocol import TextCodec
from decoding.request.canvas import CanvasState

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DecodedText:
    """One finished canvas of a request: the first pass of an attempt (round 0) or a repair round."""

    state: CanvasState
    attempt: int
    round: int
    reopened: tuple[int, ...]
    """Positions opened for this pass; every one was decoded again."""
    text: str
    satisfied: bool
    score: float
    rows: int
    """Rows of the whole request when this pass ended."""
    confidence: Values
    """Guided probability of each token [L] when it was committed, in this pass or an earlier one; NaN: was filled."""
    variation: Values
    """Total variation between guided and conditional distribution there; NaN where the commit was not guided."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Better passes are larger."""
        return self.satisfied, self.score

    @property
    def tokens(self) -> tuple[int, ...]:
        """The finished canvas [L]."""
        return tuple(self.state.tokens.tolist())


def finished(
    state: CanvasState,
    predicate: Constraint,
    codec: TextCodec,
    *,
    attempt: int = 0,
    number: int = 0,
    reopened: tuple[int, ...] = (),
    before: DecodedText | None = None,
) -> DecodedText:
    """Judge a finished canvas; commits that it took over from `before` keep that pass's confidence."""
    text = state.job.text(codec, state.content())
    verdict = predicate.evaluate(text)
    length = state.job.gen_length
    confidence = np.full(length, np.nan) if before is None else before.confidence.copy()
    variation = np.full(length, np.nan) if before is None else before.variation.copy()
    for stats in state.trace.steps:
        at = list(stats.positions)
        confidence[at] = stats.confidence
        variation[at] = stats.variation or np.nan
        confidence[list(stats.filled)] = variation[list(stats.filled)] = np.nan
    return DecodedText(
        state=state,
        attempt=attempt,
        round=number,
        reopened=reopened,
        text=text,
        satisfied=verdict.satisfied,
        score=verdict.score,
        rows=state.ledger.total,
        confidence=confidence,
        variation=variation,
    )
