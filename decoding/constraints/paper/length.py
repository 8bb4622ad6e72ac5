"""Length: a band relative to a source text (paper, "Length"), and a plain range of words.

A word is an element of `text.split()`, as in the paper, unless it is nothing but punctuation: a dash between two words
is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.words import plural, word_range, written_words


@register
@dataclass(frozen=True, slots=True)
class LengthRatio(Constraint):
    """Words of the text / words of `source` lies in [low, high] (paper default [0.4, 0.8]).

    Partial score: ratio / low below the band, high / ratio above it. Raises ConstraintError when `source` has no
    word, the band is empty, or no whole number of words (at least one) falls into it.
    """

    type: ClassVar[str] = "length_ratio"
    summary: ClassVar[str] = "The text has low to high times as many words as the source text."
    families: ClassVar[tuple[str, ...]] = ("ccg-length",)

    source: str
    low: float = 0.4
    high: float = 0.8

    def __post_init__(self) -> None:
        fields.text(self.source, "source", limit=fields.MAX_SOURCE)
        if not self.source_words:
            raise ConstraintError("source", "has no word; give a text to be measured by")
        low = fields.number(self.low, "low", low=0.0, high=100.0)
        high = fields.number(self.high, "high", low=0.0, high=100.0, low_open=True)
        fields.assign(self, low=low, high=high)
        if low > high:
            raise ConstraintError("low", f"is {low:g}, above high {high:g}; the band is empty")
        minimum, maximum = self.word_range()
        if minimum > maximum:
            words = plural(self.source_words, "word")
            raise ConstraintError("high", f"no number of words fits [{low:g}, {high:g}] times {words}; widen the band")

    @property
    def source_words(self) -> int:
        """Words of the source; at least 1 once it has been checked."""
        return len(written_words(self.source))

    def word_range(self) -> tuple[int, int]:
        """Fewest (at least 1) and most words of a satisfying text; fewest > most when there is none."""
        words = self.source_words
        minimum = max(1, math.ceil(self.low * words) - 1)
        while minimum / words < self.low:
            minimum += 1
        maximum = math.floor(self.high * words) + 1
        while maximum / words > self.high:
            maximum -= 1
        return minimum, maximum

    def _checks(self, text: str) -> tuple[Check, ...]:
        count = len(written_words(text))
        ratio = count / self.source_words
        satisfied = self.low <= ratio <= self.high
        partial = self.high / ratio if ratio > self.high else ratio / self.low if self.low else 0.0
        minimum, maximum = self.word_range()
        detail = f"{plural(count, 'word')}, {ratio:.2f} of the source; wanted {minimum} to {maximum}"
        return (Check.graded("length ratio", satisfied, partial, detail),)

    def instruction(self) -> str:
        source = " ".join(self.source.split())
        stop = "" if source[-1] in ".!?" else "."
        return f"Rewrite this text: {source}{stop} {word_range(*self.word_range())}"

    def facts(self) -> Facts:
        return Facts((self.source,), self.low, self.high)

    def minimum_words(self) -> int:
        return self.word_range()[0]

    def maximum_words(self) -> int | None:
        return self.word_range()[1]

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "source": self.source, "low": self.low, "high": self.high}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        source = {"type": "string", "minLength": 1, "maxLength": fields.MAX_SOURCE}
        properties = {
            "source": {**source, "description": "The text whose number of words is the measure."},
            "low": {"type": "number", "minimum": 0, "maximum": 100, "default": 0.4, "description": "Smallest ratio."},
            "high": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 100,
                "default": 0.8,
                "description": "Largest ratio.",
            },
        }
        return fields.object_schema(cls.type, properties, ["source"])

    @classmethod
    def example(cls) -> Self:
        return cls("The old man walked slowly along the beach with his small brown dog.", 0.4, 0.8)


@register
@dataclass(frozen=True, slots=True)
class WordCount(Constraint):
    """Between `min_words` and `max_words` words, both included; `max_words` None is no upper bound.

    Partial score: words / min_words below the range, max_words / words above it. Belongs to no calibrated family.
    Raises ConstraintError for an empty range.
    """

    type: ClassVar[str] = "word_count"
    summary: ClassVar[str] = "The number of white-space separated words lies in a range, bounds included."

    min_words: int
    max_words: int | None = None

    def __post_init__(self) -> None:
        low = fields.integer(self.min_words, "min_words", low=0)
        if self.max_words is not None:
            high = fields.integer(self.max_words, "max_words", low=1)
            if low > high:
                raise ConstraintError(
                    "min_words", f"is {low}, above max_words {high}; no text has so many and so few words"
                )

    def _checks(self, text: str) -> tuple[Check, ...]:
        count = len(written_words(text))
        above = self.max_words is not None and count > self.max_words
        satisfied = count >= self.min_words and not above
        partial = (self.max_words or 0) / count if above else count / max(self.min_words, 1)
        wanted = f"at least {self.min_words}" if self.max_words is None else f"{self.min_words} to {self.max_words}"
        return (Check.graded("word count", satisfied, partial, f"{plural(count, 'word')}, wanted {wanted}"),)

    def instruction(self) -> str:
        return word_range(max(self.min_words, 1), self.max_words)

    def facts(self) -> Facts:
        return Facts(low=float(self.min_words), high=float(self.max_words or 0))

    def minimum_words(self) -> int:
        return max(self.min_words, 1)

    def maximum_words(self) -> int | None:
        return self.max_words

    def always_holds(self) -> bool:
        return self.min_words <= 1 and self.max_words is None

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "min_words": self.min_words, "max_words": self.max_words}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        upper = fields.count_schema(1, "Most words allowed; null for no upper bound.")
        properties = {
            "min_words": fields.count_schema(0, "Fewest words allowed."),
            "max_words": {**upper, "type": ["integer", "null"], "default": None},
        }
        return fields.object_schema(cls.type, properties, ["min_words"])

    @classmethod
    def example(cls) -> Self:
        return cls(5, 12)
