"""What stands beside every success figure: length, repeats, diversity, and honest intervals."""

from __future__ import annotations

import math
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


def wilson(successes: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion (95 % by default). (0, 1) where `count` is 0."""
    if count == 0:
        return 0.0, 1.0
    p, denominator = successes / count, 1 + z * z / count
    centre = (p + z * z / (2 * count)) / denominator
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)
