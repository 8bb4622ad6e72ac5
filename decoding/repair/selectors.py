"""Which positions of a failed text are decoded again: rankings that run no model. Those by rollouts are in `loop`.

A ranking gives every candidate position a tuple of keys; smaller comes first, ties go to the smaller position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from decoding.constraints.base.constraint import Constraint
from decoding.models.protocol import TextCodec
from decoding.policy.repair import LOOKING
from decoding.repair.passes import DecodedText
from decoding.request.template import TemplateCanvas
from decoding.sampling.noise import NoiseKey

Key = tuple[float, ...]
TOLERANCE: Final = 1e-9
"""Graded scores that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class RepairContext:
    """What a selector knows: the best pass, the candidate positions, and how texts are judged."""

    decoded: DecodedText
    candidates: tuple[int, ...]
    predicate: Constraint
    codec: TextCodec
    noise: NoiseKey
    """Of the coming round."""


def text_length(canvas: Sequence[int], end_ids: Sequence[int]) -> int:
    """Positions before the first end-of-text."""
    return next((index for index, token in enumerate(canvas) if token in end_ids), len(canvas))


def candidates_of(
    canvas: Sequence[int], mask_id: int, end_ids: Sequence[int], template: TemplateCanvas | None = None
) -> tuple[int, ...]:
    """Committed positions of the text and its first end-of-text, or those in the blanks of a template.

    Positions behind the end of the text are padding: what is written there nobody reads.
    """
    positions = range(text_length(canvas, end_ids) + 1) if template is None else template.open
    return tuple(index for index in positions if index < len(canvas) and canvas[index] != mask_id)


def _confidence(decoded: DecodedText, position: int) -> float:
    value = float(decoded.confidence[position])
    return 1.0 if np.isnan(value) else value


def commit_confidence(context: RepairContext) -> dict[int, Key]:
    """The least confident commits first."""
    return {position: (_confidence(context.decoded, position),) for position in context.candidates}


def guidance_disagreement(context: RepairContext) -> dict[int, Key]:
    """Commits first at which guided and conditional distributions lay furthest apart; then unguided ones, the least
    confident first.
    """
    variation = np.nan_to_num(context.decoded.variation, nan=0.0)
    return {p: (-float(variation[p]), _confidence(context.decoded, p)) for p in context.candidates}


def scores_without(context: RepairContext) -> dict[int, float]:
    """Graded score of the text without each candidate's token, less the score of the whole text."""
    content = context.decoded.state.content()
    gains = dict.fromkeys(context.candidates, 0.0)
    for position in context.candidates:
        if position < len(content):
            text = context.decoded.state.job.text(context.codec, content, without=position)
            gains[position] = context.predicate.evaluate(text).score - context.decoded.score
    return gains


def leave_one_out(context: RepairContext) -> dict[int, Key]:
    """Tokens first without which the text scores best; among equals the least confident."""
    gains = scores_without(context)
    return {p: (-round(gains[p] / TOLERANCE), _confidence(context.decoded, p)) for p in context.candidates}


def random(context: RepairContext) -> dict[int, Key]:
    """In random order."""
    uniforms = context.noise.uniforms(0, int(context.decoded.confidence.size))
    return {position: (float(uniforms[position]),) for position in context.candidates}


def constraint_aware(context: RepairContext) -> dict[int, Key]:
    """What the predicate itself says of each position (for a text of the wrong length see `tail`).

    Offenders go first, without which the text scores better (a forbidden word, a comma, a capital), then their
    neighbours, or the model would only write them again; then positions that the score does not depend on, the least
    confident; what carries a part of the constraint comes last.
    """
    gains = scores_without(context)
    offenders = [position for position, gain in gains.items() if gain > TOLERANCE]
    keys: dict[int, Key] = {}
    for position, gain in gains.items():
        confidence = _confidence(context.decoded, position)
        if gain > TOLERANCE:
            keys[position] = (0.0, -round(gain / TOLERANCE), confidence)
        elif gain < -TOLERANCE:
            keys[position] = (3.0, confidence)
        else:
            beside = any(abs(position - offender) == 1 for offender in offenders)
            keys[position] = (1.0 if beside else 2.0, confidence)
    return keys


def by_rollouts(candidates: Sequence[int], texts: Sequence[str], predicate: Constraint) -> dict[int, Key]:
    """Positions first whose reopening ends best: the most rollouts that satisfy, then the largest graded score.

    `texts`: of the rollouts, equally many for each candidate in turn.
    """
    count = len(texts) // max(1, len(candidates))
    keys: dict[int, Key] = {}
    for index, position in enumerate(candidates):
        verdicts = [predicate.evaluate(text) for text in texts[index * count : (index + 1) * count]]
        keys[position] = -sum(verdict.satisfied for verdict in verdicts), -sum(verdict.score for verdict in verdicts)
    return keys


RANKINGS: Final[Mapping[str, Callable[[RepairContext], dict[int, Key]]]] = {
    "constraint_aware": constraint_aware,
    LOOKING: constraint_aware,
    "commit_confidence": commit_confidence,
    "guidance_disagreement": guidance_disagreement,
    "leave_one_out": leave_one_out,
    "random": random,
}
"""`keyword_argmax` where it has nothing to look for; see `placing`."""


def first(keys: Mapping[int, Key], count: int, tried: frozenset[int]) -> tuple[int, ...]:
    """The `count` best positions in ascending order; those `tried` in vain before rank behind all others."""
    ranked = sorted(keys, key=lambda position: (position in tried, keys[position], position))
    return tuple(sorted(ranked[:count]))
