"""Verify and mend: what a wide tail has drawn together is looked at again, some positions at a time.

After the last mask the tail's positions are opened again in a few passes, every n-th of them in each, so that those of
one pass stand apart and see all others. A token stays where it is still likely there; else it is drawn anew, once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

STANDS: Final = 0.1
"""A token stays where its probability, all others given, is at least this share of the best one's."""
NO_TOKEN: Final = -1
"""In place of a token id: nothing stands here, whatever is drawn is taken."""


def opened_in(
    tail: Sequence[int], canvas: Sequence[int], end_ids: Collection[int], number: int, passes: int
) -> tuple[int, ...]:
    """Positions of `tail` that pass `number` of 0..passes - 1 opens again in the finished `canvas` [L].

    What stands behind the first end of the text is left alone: nobody reads it.
    """
    last = next((position for position, token in enumerate(canvas) if token in end_ids), len(canvas))
    return tuple(position for position in tail[number::passes] if position <= last)


def standing(canvas: Sequence[int], positions: Sequence[int], end_ids: Collection[int]) -> list[int]:
    """The token of each of `positions` that stays if it is still likely; `NO_TOKEN` where it repeats a neighbour."""
    tokens = []
    for position in positions:
        token, beside = (
            canvas[position],
            [*canvas[max(0, position - 1) : position], *canvas[position + 1 : position + 2]],
        )
        repeats = token in beside and token not in end_ids
        tokens.append(NO_TOKEN if repeats else token)
    return tokens
