"""What the judge sees of a text: how surprising its tokens are to a language model, and what it repeats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.judge.model.language_model import LanguageModel, Surprisals
from gate_models.offline.judge.model.unigrams import shipped_unigrams

PLAIN: Final = ("repeated", "slor", "mean", "max")
FEATURES: Final = (*PLAIN, "lowest_slor", "lowest_slor_of_4", "surprising", "length", "adjacent")
SURPRISING: Final = 6.0
"""Nats from which on a token counts as surprising."""
RUN: Final = 4
"""Tokens of a window."""
SAID: Final[Mapping[str, str]] = {
    "repeated": "share of the content words that have the stem of an earlier one",
    "slor": "mean over the tokens of log p under the language model less log p by frequency",
    "mean": "mean surprisal of a token, nats",
    "max": "largest surprisal",
    "lowest_slor": "lowest SLOR of a token",
    "lowest_slor_of_4": "lowest mean SLOR of four tokens in a row",
    "surprising": "tokens of at least 6 nats",
    "length": "log of one more than the number of words",
    "adjacent": "a word stands twice in a row",
}
"""What each feature is, for the report."""
_WORD: Final = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
_ENDINGS: Final = ("ing", "ed", "es", "s", "e")
_STEM: Final = 3
"""Letters that a stem keeps at least."""
_STOP: Final = frozenset(
    """
    a an the and or but of to in on at by for with from into onto over under up down out off as is are was were be been
    being am do does did has have had having it its he she they them him her his their i you we my your our us me that
    this these those there who which what when where while so not no if then than s t re ll d m ve will would can could
    should just very too
    """.split()
)


def words_of(text: str) -> list[str]:
    """Its words in lower case."""
    return _WORD.findall(text.lower())


def stem(word: str) -> str:
    """`word` without a common ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word[: -len(ending)]
    return word


def repeated(text: str) -> float:
    """Share of the content words that have the stem of an earlier one."""
    content = [stem(word) for word in words_of(text) if word not in _STOP]
    return (len(content) - len(set(content))) / max(1, len(content))


def features_of(text: str, score: Surprisals, unigrams: NDArray[np.float32]) -> dict[str, float]:
    """Every feature of `FEATURES`; the first token counts only where it is alone.

    SLOR of a token is its log probability under the language model less that by its frequency alone, nats.
    """
    words = words_of(text)
    skip = 1 if len(score.ids) > 1 else 0
    nats = score.nats[skip:] if len(score.ids) else np.zeros(1, np.float32)
    slor = unigrams[score.ids[skip:]] - nats if len(score.ids) else np.zeros(1, np.float32)
    windows = np.convolve(slor, np.ones(RUN) / RUN, "valid") if len(slor) >= RUN else np.array([slor.mean()])
    return {
        "repeated": repeated(text),
        "slor": float(slor.mean()),
        "mean": float(nats.mean()),
        "max": float(nats.max()),
        "lowest_slor": float(slor.min()),
        "lowest_slor_of_4": float(windows.min()),
        "surprising": float((nats > SURPRISING).sum()),
        "length": float(np.log1p(len(words))),
        "adjacent": float(any(a == b for a, b in pairwise(words))),
    }


def matrix(texts: Sequence[str], model: LanguageModel) -> NDArray[np.float64]:
    """[n, F] in the order of `FEATURES`."""
    unigrams = shipped_unigrams()
    rows = [features_of(text, score, unigrams) for text, score in zip(texts, model.surprisals(texts), strict=True)]
    return np.array([[row[name] for name in FEATURES] for row in rows]).reshape(len(texts), len(FEATURES))
