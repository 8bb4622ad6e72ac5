"""Commit orders: which masked positions of a request are committed in a step.

An order is a score of each candidate, larger first; ties go to the smaller position. The set is open: `register` adds
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.sampling.kernel import Candidates

Score = Callable[[Candidates, Tensor], Tensor]
"""(candidates of M positions, order uniforms [M]) -> scores [M]."""


@dataclass(frozen=True, slots=True)
class Order:
    """A named score; `guided_only` orders need both branches, and `needs_noise` ones a second uniform a position."""

    name: str
    score: Score
    guided_only: bool = False
    needs_noise: bool = False


CONFIDENCE_KINDS: dict[str, Order] = {}
"""What "confidence" may mean: the decoder's own order, guided or not."""
GUIDED_ORDERS: dict[str, Order] = {}
"""Orders that a guided phase may use instead of confidence."""


def register(order: Order) -> Order:
    """Add an order under its name: to the guided orders where it needs guidance, else to the confidence kinds."""
    table = GUIDED_ORDERS if order.guided_only else CONFIDENCE_KINDS
    table[order.name] = order
    return order


PROBABILITY = register(Order("probability", lambda c, _: c.probability))
MARGIN = register(Order("margin", lambda c, _: c.margin))
NEG_ENTROPY = register(Order("neg_entropy", lambda c, _: -c.entropy))
RANDOM = register(Order("random", lambda _, u: u, needs_noise=True))
GUIDANCE_BOOST = register(Order("guidance_boost", lambda c, _: c.boost, guided_only=True))
BOOST_CONFIDENCE = register(Order("boost_confidence", lambda c, _: c.boost * c.probability, guided_only=True))


def ranked(scores: Tensor, positions: Tensor) -> Tensor:
    """Indices [M] from the first to the last to commit: by falling score, ties by rising position."""
    by_position = positions.argsort(stable=True)
    return by_position[scores[by_position].argsort(descending=True, stable=True)]


def reached_first(ranked_confidence: Tensor, threshold: float) -> Tensor:
    """Indices that bring candidates of at least `threshold` confidence to the front, each group in its rank order."""
    return (ranked_confidence < threshold).to(torch.int8).argsort(stable=True)


def commit_count(quota: int, available: int, ranked_confidence: Tensor, threshold: float | None, least: int = 1) -> int:
    """How many of the ranked candidates to commit.

    Without a threshold the quota; with one (adaptive tail) every leading candidate whose confidence reaches it, at
    least `least` (what the schedule needs to end in time) and at most the quota. Never more than `available`.
    """
    limit = min(quota, available)
    if threshold is None or limit <= least:
        return limit
    reached = int((ranked_confidence[:limit] >= threshold).to(torch.int64).cumprod(0).sum())
    return max(least, reached)
