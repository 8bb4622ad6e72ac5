"""What the judge sees of a text: repeats, surprisals of its tokens, the probe's opinion, the state at its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.judge.model.language_model import LanguageModel, Surprisals
from gate_models.offline.judge.model.probe import shipped_probe
from gate_models.offline.judge.model.unigrams import shipped_unigrams

END: Final = "end"
SAID: Final[dict[str, str]] = {
    "repeats": "content words after the first of their stem, over content words",
    "sentence_repeats": "the same within a sentence; of the worst sentence",
    "mean": "mean surprisal (nats; the first token is left out here and below)",
    "max": "largest surprisal",
    "top": "mean of the three largest surprisals",
    "new_mean": "mean surprisal of tokens that the text has not had before",
    "slor": "mean of log p_model - log p_unigram",
    "slor_window": "the same over four tokens in a row; the worst such window",
    "odd_tokens": "tokens of more than 6 nats",
    "odd_share": "tokens of more than 8 nats over tokens",
    "probe": "the probe's logit that a text is by people",
    END: "a linear reading of the language model's state after the last token, learned from the labels",
}
"""Every feature, and what it is."""
FEATURES: Final = (
    "repeats",
    "sentence_repeats",
    "new_mean",
    "slor_window",
    "odd_tokens",
    "odd_share",
    "probe",
)
"""Those that the judge weighs beside `end`."""
PLAIN: Final = ("repeats", "slor", "max", "mean")
"""The four that were tried first."""
WINDOW: Final = 4
ODD: Final = 6.0
VERY_ODD: Final = 8.0
_WORD: Final = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_ENDINGS: Final = ("ing", "ed", "es", "s", "e")
_STOP: Final = frozenset(
    "a an the and or but of to in on at by for with from into onto over under up down out off as is are was were "
    "be been being am do does did has have had having it its he she they him her them his their i you we my your "
    "our us me that this these those there who which what when while where so not no if then than s t re ll d m "
    "ve will would can could should just very too".split()
)

Matrix = NDArray[np.float64]


def stem(word: str) -> str:
    """`word` without one ending; three letters stay at least."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def repeats(text: str) -> float:
    """Share of content words whose stem came before; 0 without content words."""
    stems = [stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP]
    return (len(stems) - len(set(stems))) / len(stems) if stems else 0.0


def surprise(score: Surprisals, unigrams: NDArray[np.float32]) -> dict[str, float]:
    """The features of surprisals. The first token is left out unless it is alone; of no token, all are 0."""
    skip = 1 if len(score.ids) > 1 else 0
    nats, ids = score.nats[skip:], score.ids[skip:]
    if not len(nats):
        return dict.fromkeys(("mean", "max", "top", "new_mean", "slor", "slor_window", "odd_tokens", "odd_share"), 0.0)
    gains = unigrams[ids] - nats
    size = min(WINDOW, len(gains))
    return {
        "mean": float(nats.mean()),
        "max": float(nats.max()),
        "top": float(np.sort(nats)[-3:].mean()),
        "new_mean": float(nats[_new(score.ids)[skip:]].mean()) if _new(score.ids)[skip:].any() else 0.0,
        "slor": float(gains.mean()),
        "slor_window": float(np.convolve(gains, np.ones(size) / size, "valid").min()),
        "odd_tokens": float((nats > ODD).sum()),
        "odd_share": float((nats > VERY_ODD).mean()),
    }


def features(text: str, score: Surprisals) -> dict[str, float]:
    """All of `SAID` but `end`."""
    return {
        **surprise(score, shipped_unigrams()),
        "repeats": repeats(text),
        "sentence_repeats": max((repeats(sentence) for sentence in _SENTENCE.split(text)), default=0.0),
        "probe": shipped_probe().logit(score.odd),
    }


def matrix(
    texts: Sequence[str], model: LanguageModel, names: Sequence[str] = FEATURES
) -> tuple[Matrix, NDArray[np.float32]]:
    """Rows of features [n, len(names)], and the states at the texts' ends [n, E]."""
    scores = model.surprisals(texts)
    ends = np.stack([score.end for score in scores]) if texts else np.zeros((0, 0), np.float32)
    rows = [features(text, score) for text, score in zip(texts, scores, strict=True)]
    seen = np.array([[row[name] for name in names] for row in rows], dtype=np.float64).reshape(len(texts), len(names))
    return seen, ends


def _new(ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each token is the first of its kind."""
    first = np.zeros(len(ids), bool)
    first[np.unique(ids, return_index=True)[1]] = True
    return first
