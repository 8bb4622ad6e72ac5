"""Words, adjacent repeats and diversity of a text: reports show them beside success."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


def words(text: str) -> list[str]:
    """Lower-case words of a text."""
    return _WORD.findall(text.lower())


def has_adjacent_repeat(text: str) -> bool:
    """Whether some word follows itself directly: what parallel decoding under CFG does while it keeps its success."""
    tokens = words(text)
    return any(a == b for a, b in pairwise(tokens))


def distinct_2(texts: Sequence[str]) -> float:
    """Distinct bigrams over all bigrams of all texts (Li et al. 2016); 0 where there is none."""
    pairs = [pair for text in texts for pair in pairwise(words(text))]
    return len(set(pairs)) / len(pairs) if pairs else 0.0
