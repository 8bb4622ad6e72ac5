"""How far the prediction for a position has moved from one step to the next, from few numbers a position.

A whole distribution over a vocabulary of 126,000 is too much to keep for every position of every request, and to
record. Kept are the `LEADERS` most probable tokens with their probabilities in millionths. Two steps are compared on
the tokens that both lists hold and on all others taken together. By the data-processing inequality that is a lower
bound of the divergence of the whole distributions: it misses what moves among tokens that are not in both lists. A
prediction with another best token has changed whatever the bound says.

Whole numbers survive a record as they are: a continuation from a recorded step decides as the run did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

LEADERS: Final = 4
"""Tokens remembered of a position."""
MILLION: Final = 1_000_000
UNCHANGED_BELOW: Final = 0.015
"""Divergence in nats below which a prediction counts as unchanged."""

Leaders = tuple[tuple[int, int], ...]
"""(token id, probability in millionths), best first."""


class Seen(NamedTuple):
    """What is remembered of a masked position."""

    position: int
    unchanged: int
    """Steps in a row that have left the prediction unchanged."""
    leaders: Leaders


class TailState(NamedTuple):
    """What a tail carries from step to step beside its canvas; a continuation from a recorded step needs it."""

    seen: tuple[Seen, ...] = ()
    """For rules that look at earlier steps."""
    entered: int = 0
    """For growing schedules: masks that the active region had when the tail entered it; 0 before its first step."""
    opened: tuple[int, ...] = ()
    """For tails that are mended: the positions that were masked when the tail began."""
    mended: int = 0
    """Passes of mending that have been made."""

    @staticmethod
    def of(recorded: tuple[Any, ...]) -> TailState:
        """As read back from a record, where named tuples are plain ones."""
        seen, *rest = recorded
        return TailState(tuple(Seen(*entry) for entry in seen), *rest)


NO_TAIL: Final = TailState()


def leaders_of(ids: Sequence[int], probabilities: Sequence[float]) -> Leaders:
    """The leaders of a position as they are kept."""
    return tuple((token, round(p * MILLION)) for token, p in zip(ids, probabilities, strict=True))


def divergence(now: Leaders, before: Leaders) -> float:
    """KL(now || before) in nats over the tokens of both lists and all others together; never below 0.

    A probability counts as one millionth at least: less was rounded away.
    """
    earlier = dict(before)
    pairs = [(p, earlier[token]) for token, p in now if token in earlier]
    rest = MILLION - sum(p for p, _ in pairs), MILLION - sum(q for _, q in pairs)
    terms = ((max(1, p), max(1, q)) for p, q in [*pairs, rest])
    return max(0.0, sum(p / MILLION * math.log(p / q) for p, q in terms))


def unchanged(now: Leaders, before: Leaders) -> bool:
    """Whether a prediction has the same best token as a step before, and has hardly moved."""
    return now[0][0] == before[0][0] and divergence(now, before) < UNCHANGED_BELOW


def remembered(seen: Sequence[Seen], positions: Sequence[int], leaders: Sequence[Leaders]) -> tuple[Seen, ...]:
    """The memory after a step that predicted `leaders` at `positions`, from that before it."""
    earlier = {entry.position: entry for entry in seen}
    entries = []
    for position, now in zip(positions, leaders, strict=True):
        before = earlier.get(position)
        same = before is not None and unchanged(now, before.leaders)
        entries.append(Seen(position, before.unchanged + 1 if before is not None and same else 0, now))
    return tuple(entries)
