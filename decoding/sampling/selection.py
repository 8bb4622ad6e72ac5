"""Which of a request's candidates a step commits: the order's ranking, under the thresholds that the policy sets."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.sampling.commit_order import Order, commit_count, ranked, reached_first
from decoding.sampling.kernel import Candidates
from decoding.sampling.tail_rule import Tail, TailStep, together

Positions = NDArray[np.int64]
APART = 4.0
"""What sets a group of positions apart from the others in a guided order, whose scores lie in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """How many positions a step may commit."""

    scheduled: int
    """What the schedule asks for, to end in time."""
    quota: int
    """That, or the phase's width where it is larger."""
    confidence: float | None = None
    """Adaptive tail: beyond the schedule only tokens of at least this probability."""
    boost: float | None = None
    """Guidance first: beyond the schedule only tokens that guidance raises by at least this much, each once."""
    tail: Tail | None = None
    """Which positions of a wide base step go together; None: the best."""


def inside_words(
    canvas: NDArray[np.int64], positions: Positions, tokens: Positions, mask_id: int, continuations: Collection[int]
) -> NDArray[np.bool_]:
    """Which candidates ([M] positions and tokens) stand in a word that `canvas` [L] has begun but not ended.

    A candidate that continues a word does where its left neighbour is committed; any candidate does where its right
    neighbour is committed and continues a word.
    """
    inside = np.zeros(positions.size, dtype=bool)
    for index, (position, token) in enumerate(zip(positions.tolist(), tokens.tolist(), strict=True)):
        left = position > 0 and canvas[position - 1] != mask_id and token in continuations
        right = position + 1 < canvas.size and int(canvas[position + 1]) in continuations
        inside[index] = left or right
    return inside


def in_margins(
    positions: Positions, tokens: Positions, length: int, margins: tuple[float, float], end_ids: Collection[int]
) -> NDArray[np.bool_]:
    """Which candidates ([M] positions and tokens) would stand in the first or the last share of a canvas.

    A text begins and ends there: a word that guidance wants has no room for the words that lead up to it, or follow it.
    An end-of-text is where it belongs. `margins` are as `ModelSpec.text_margins` says.
    """
    first, last = (math.ceil(share * length) for share in margins)
    inside = (positions < first) | (positions >= length - last)
    return inside & ~np.isin(tokens, list(end_ids))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where candidates [M] stand in the text as far as it is written; bool each."""

    started: NDArray[np.bool_]
    """In a word that has begun but not ended: guided orders put it first, so that it ends under the same guidance."""
    margin: NDArray[np.bool_]
    """At an end of the canvas: guided orders put it last."""
    deferred: NDArray[np.bool_]
    """Every order puts it last."""


def select(
    candidates: Candidates,
    positions: Positions,
    eligible: Positions,
    *,
    order: Order,
    uniforms: torch.Tensor,
    limits: CommitLimits,
    canvas: NDArray[np.int64],
    standing: Standing,
) -> Positions:
    """Indices into `positions` [M] that are committed, in order of position.

    `eligible` are the indices that may be.
    """
    scores = order.score(candidates, uniforms).double()
    started, late = standing.started, standing.margin & ~standing.started
    if order.guidance_first:
        scores = scores + APART * torch.from_numpy(started.astype(np.float64) - late)
    scores = scores.masked_fill(torch.from_numpy(standing.deferred), float("-inf"))
    within = ranked(scores[eligible], torch.from_numpy(positions[eligible])).numpy()
    sequence: Positions = eligible[within]
    minimum = max(1, limits.scheduled)
    if limits.boost is not None:
        return np.sort(_boosted(candidates, sequence, late, canvas, limits, limits.boost))
    if limits.tail is not None:
        step = _tail_step(candidates, positions, sequence, canvas, limits.tail, limits.confidence or 0.0)
        return together(limits.tail.rule, step, minimum, limits.quota)
    if limits.confidence is not None:
        sequence = sequence[reached_first(candidates.probability[sequence], limits.confidence).numpy()]
    count = commit_count(limits.quota, int(eligible.size), candidates.probability[sequence], limits.confidence, minimum)
    return np.sort(sequence[:count])


def _tail_step(
    candidates: Candidates,
    positions: Positions,
    sequence: Positions,
    canvas: NDArray[np.int64],
    tail: Tail,
    threshold: float,
) -> TailStep:
    return TailStep(
        sequence=sequence.tolist(),
        positions=positions.tolist(),
        tokens=candidates.token.tolist(),
        probability=candidates.probability.tolist(),
        entropy=candidates.entropy.tolist(),
        canvas=canvas.tolist(),
        mask_id=tail.mask_id,
        end_ids=tail.end_ids,
        threshold=threshold,
        unchanged=tail.unchanged,
        attention=tail.attention,
    )


def _boosted(
    candidates: Candidates,
    sequence: Positions,
    late: NDArray[np.bool_],
    canvas: NDArray[np.int64],
    limits: CommitLimits,
    threshold: float,
) -> Positions:
    """What the schedule asks for of `sequence`, and the others that guidance raises by `threshold`, up to the quota.

    All positions were drawn at once, and guidance may want the same word at several of them: beyond the schedule a
    token is committed once, and not where the canvas has it already; none is committed `late` [M].
    """
    minimum = max(1, limits.scheduled)
    chosen = sequence[:minimum].tolist()
    written = set(canvas.tolist()) | set(candidates.token[chosen].tolist())
    boosts, tokens = candidates.boost.tolist(), candidates.token.tolist()
    for index in sequence[minimum:].tolist():
        if len(chosen) >= limits.quota:
            break
        if boosts[index] >= threshold and tokens[index] not in written and not late[index]:
            chosen.append(index)
            written.add(tokens[index])
    return np.array(chosen, dtype=np.int64)
