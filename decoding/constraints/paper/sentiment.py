"""Sentiment: a fixed classifier gives the target polarity at least `threshold` probability (paper, "Sentiment").

The classifier is injected. `HashedSentiment`, shipped with the package, is a linear model over hashed n-grams trained
on SST-2; `data/sentiment.json` holds its measured accuracy, its sources and their licences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import IO, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.paper.sentiment_features import BUCKETS, FEATURE_VERSION, features

TARGETS = ("positive", "negative")


@runtime_checkable
class SentimentScorer(Protocol):
    """Anything that says how positive texts are. It must be deterministic and safe to call from any thread."""

    def probability_positive(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """P(positive) in [0, 1] of each text, shape [len(texts)]."""
        ...


class HashedSentiment:
    """The shipped classifier: P(positive) = sigmoid(scale * sum of the text's bucket weights + offset).

    Pure NumPy, sums in float64 and in bucket order, so a text has the same probability wherever it is scored.
    """

    __slots__ = ("_offset", "_scale", "_weights")

    def __init__(self, weights: NDArray[np.float16], scale: float, offset: float) -> None:
        """`weights` has shape [BUCKETS]; raises ValueError for another shape or for numbers that are not finite."""
        if weights.shape != (BUCKETS,):
            raise ValueError(f"expected weights of shape ({BUCKETS},), got {weights.shape}")
        if not (np.isfinite(weights).all() and np.isfinite(scale) and np.isfinite(offset)):
            raise ValueError("sentiment weights, scale and offset must be finite")
        self._weights = weights
        self._scale = float(scale)
        self._offset = float(offset)

    @classmethod
    def load(cls, file: IO[bytes]) -> HashedSentiment:
        """Read a model written by `train_sentiment`; raises ValueError when it was trained on other features."""
        with np.load(file, allow_pickle=False) as arrays:
            version = int(arrays["feature_version"])
            if version != FEATURE_VERSION:
                raise ValueError(
                    f"the model was trained on features version {version}, this code makes {FEATURE_VERSION}"
                )
            return cls(arrays["weights"], float(arrays["scale"]), float(arrays["offset"]))

    def probability_positive(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """P(positive) of each text, shape [len(texts)]; a text without a word gets sigmoid(offset)."""
        sums = [self._weights[np.asarray(features(text), dtype=np.intp)].astype(np.float64).sum() for text in texts]
        logits = self._scale * np.asarray(sums, dtype=np.float64) + self._offset
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0))), dtype=np.float64)


@cache
def shipped_sentiment() -> HashedSentiment:
    """The classifier in `data/sentiment.npz`, loaded once."""
    with (resources.files("decoding.constraints") / "data" / "sentiment.npz").open("rb") as file:
        return HashedSentiment.load(file)


def shipped_sentiment_card() -> dict[str, Any]:
    """Seed, data, licences and measured accuracy of the shipped classifier."""
    text = (resources.files("decoding.constraints") / "data" / "sentiment.json").read_text(encoding="utf-8")
    card: dict[str, Any] = json.loads(text)
    return card


@register
@dataclass(frozen=True, slots=True)
class Sentiment(Constraint):
    """P(target) >= threshold under `scorer` (the shipped one when None).

    Partial score: P(target) / threshold. The scorer takes no part in equality and is not written to the spec.
    """

    type: ClassVar[str] = "sentiment"
    summary: ClassVar[str] = "A sentiment classifier gives the target polarity at least the threshold probability."
    families: ClassVar[tuple[str, ...]] = ("ccg-sentiment",)

    target: str
    threshold: float = 0.5
    scorer: SentimentScorer | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        fields.choice(self.target, "target", TARGETS)
        threshold = fields.number(self.threshold, "threshold", low=0.0, high=1.0, low_open=True)
        fields.assign(self, threshold=threshold)
        if self.scorer is not None and not isinstance(self.scorer, SentimentScorer):
            raise ConstraintError("scorer", "must have the method probability_positive(texts)")

    def probability(self, text: str) -> float:
        """P(target) of `text`. Raises ValueError when the scorer returns no probability."""
        scorer = shipped_sentiment() if self.scorer is None else self.scorer
        positive = float(np.asarray(scorer.probability_positive([text]), dtype=np.float64).reshape(1)[0])
        if not 0.0 <= positive <= 1.0:
            raise ValueError(f"the sentiment scorer returned {positive}, which is no probability")
        return positive if self.target == "positive" else 1.0 - positive

    def _checks(self, text: str) -> tuple[Check, ...]:
        probability = self.probability(text)
        detail = f"P({self.target}) = {probability:.3f}, wanted at least {self.threshold:g}"
        satisfied = probability >= self.threshold
        return (Check.graded(f"sentiment: {self.target}", satisfied, probability / self.threshold, detail),)

    def instruction(self) -> str:
        return f"Write with a {self.target} sentiment."

    def facts(self) -> Facts:
        return Facts(low=self.threshold)

    def excluded_by(self, other: Constraint) -> str | None:
        """The other polarity, where no probability satisfies both thresholds."""
        if not isinstance(other, Sentiment) or self.target == other.target or self.threshold + other.threshold < 1.0:
            return None
        return "no text is both positive and negative; keep one, or lower the thresholds"

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "target": self.target, "threshold": self.threshold}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        threshold = {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5}
        properties = {
            "target": {"enum": list(TARGETS), "description": "The polarity asked for."},
            "threshold": {**threshold, "description": "Least probability of the target polarity."},
        }
        return fields.object_schema(cls.type, properties, ["target"])

    @classmethod
    def example(cls) -> Self:
        return cls("positive", 0.5)
