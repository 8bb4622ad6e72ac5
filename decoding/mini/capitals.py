"""Words in capitals for the capital-frequency family: where markers go, and how many words they make."""

from __future__ import annotations

import random
from collections.abc import Sequence

from decoding.constraints.text import treebank_tokens
from decoding.mini.records import Pool

NAMES = frozenset(
    """
    tom mary john lily ben tim max sue jack jane alice bob anna emma lucy sam sarah mia jim bill mike boston australia
    france french english japan japanese german germany american america christmas monday tuesday wednesday thursday
    friday saturday sunday january february june july august september october november december
    """.split()
)
"""Words that English writes with a capital; they get `[CAP]` in this family, which is where case is trained."""


def count(text: str) -> int:
    """Words in capitals as IFEval counts them ("I" and a sentence's "A" too)."""
    return sum(token.isupper() for token in treebank_tokens(text))


def shout(ids: Sequence[int], wanted: int, pool: Pool, rng: random.Random) -> tuple[int, ...]:
    """`ids` with `[UPPER]` in front of `wanted` words (as far as there are), and `[CAP]` in front of other names.

    One text in four shouts neighbours rather than words here and there.
    """
    starts = [i for i in range(len(ids)) if _may_shout(ids, i, pool)]
    wanted = min(wanted, len(starts))
    first = rng.randrange(len(starts) - wanted + 1)
    chosen = set(starts[first : first + wanted] if rng.random() < 0.25 else rng.sample(starts, wanted))
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
