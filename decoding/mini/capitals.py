"""Words in capitals for the capital-frequency family: where markers go, and how many words they make."""

from __future__ import annotations

import random
from collections.abc import Sequence

from decoding.constraints.text.words import treebank_tokens
from decoding.mini.records import Pool

NAMES = frozenset(
    """
    tom mary john lily ben tim max sue jack jane alice bob anna emma lucy sam sarah mia jim bill mike boston australia
    france french english japan japanese german germany american america christmas monday tuesday wednesday thursday
    friday saturday sunday january february june july august september october november december
    """.split()
)
"""Words that English writes with a capital; they get `[CAP]` in this family, which is where case is trained."""

LEADING_SHARE = 0.75
"""Share of texts in capitals that begin with them."""


def count(text: str) -> int:
    """Words in capitals as IFEval counts them ("I" and a sentence's "A" too)."""
    return sum(token.isupper() for token in treebank_tokens(text))


def shout(ids: Sequence[int], wanted: int, pool: Pool, rng: random.Random) -> tuple[int, ...]:
    """`ids` with `[UPPER]` in front of `wanted` words (as far as there are), and `[CAP]` in front of other names.

    Three texts in four shout their first words: where the markers go must be clear early, since an order by confidence
    commits the words around an uncertain marker first and leaves it no room.
    """
    starts = [i for i in range(len(ids)) if _may_shout(ids, i, pool)]
    wanted = min(wanted, len(starts))
    first = 0 if rng.random() < LEADING_SHARE else rng.randrange(len(starts) - wanted + 1)
    chosen = set(starts[first : first + wanted])
    out: list[int] = []
    for index, token in enumerate(ids):
        if index in chosen:
            out.append(pool.upper)
        elif pool.pieces[token] in NAMES:
            out.append(pool.cap)
        out.append(token)
    return tuple(out)


def _may_shout(ids: Sequence[int], index: int, pool: Pool) -> bool:
    """Whole words of two letters or more that no apostrophe or hyphen ties to the word before."""
    piece = pool.pieces[ids[index]]
    before = pool.pieces[ids[index - 1]] if index else ""
    return piece.isalpha() and len(piece) > 1 and before not in {"'", "-"}
