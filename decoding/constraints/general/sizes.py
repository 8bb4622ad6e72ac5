"""Ranges of characters and of sentences: how long an answer may be where words are not the measure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.words import plural, runs

_LETTERS_A_WORD: Final = 6
"""Characters of an English word with its space; a canvas is chosen by it."""
_WORDS_A_SENTENCE: Final = 8
_ABBREVIATIONS: Final = frozenset("mr mrs ms dr prof st mt jr sr vs e.g i.e cf approx".split())
"""Words whose full stop ends no sentence."""
_END: Final = re.compile(
    r"[.!?\u2026]+[\"'\u2019\u201d)\]]*(?=\s|$)"  # before white space
    r"|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09]*"  # full-width: anywhere
    r"|\n\s*\n"
)
"""The end of a sentence: closing marks before white space, full-width marks, or an empty line."""
_LAST_WORD: Final = re.compile(r"[^\s\"'\u2018\u201c(\[]+$")


def sentences(text: str) -> list[str]:
    """Sentences of `text`, each with a letter or digit; the last one needs no mark at its end.

    The full stop of a common abbreviation ("Dr.") or of a single capital ("J. Smith") ends none, except at the end.
    """
    parts, start = [], 0
    for mark in _END.finditer(text):
        if mark.group()[0] == "." and len(mark.group()) == 1 and _abbreviated(text[start : mark.start()]):
            continue
        parts.append(text[start : mark.end()])
        start = mark.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if runs(part)]


def _abbreviated(before: str) -> bool:
    last = _LAST_WORD.search(before)
    if last is None:
        return False
    word = last.group()
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


def amount(verb: str, low: int, high: int | None, noun: str) -> str:
    """An instruction for a number of something."""
    if high is None:
        return f"{verb} at least {plural(low, noun)}."
    if low == high:
        return f"{verb} exactly {plural(low, noun)}."
    return f"{verb} at most {plural(high, noun)}." if low <= 1 else f"{verb} between {low} and {high} {noun}s."


def _ranged(name: str, count: int, low: int, high: int | None) -> Check:
    """Partial score: count / low below the range, high / count above it."""
    above = high is not None and count > high
    partial = (high or 0) / count if above else count / low
    wanted = f"at least {low}" if high is None else f"{low} to {high}"
    return Check.graded(name, count >= low and not above, partial, f"found {count}, wanted {wanted}")


def _check_range(low: object, high: object, names: tuple[str, str], limit: int) -> None:
    least = fields.integer(low, names[0], low=1, high=limit)
    if high is None:
        return
    most = fields.integer(high, names[1], low=1, high=limit)
    if least > most:
        raise ConstraintError(names[0], f"is {least}, above {names[1]} {most}; no text has so many and so few")


def _range_schema(kind: str, names: tuple[str, str], what: str, limit: int) -> dict[str, Any]:
    low = {**fields.count_schema(1, f"Fewest {what} allowed.", limit), "default": 1}
    high = fields.count_schema(1, f"Most {what} allowed; null for no upper bound.", limit)
    properties = {names[0]: low, names[1]: {**high, "type": ["integer", "null"], "default": None}}
    return fields.object_schema(kind, properties, [])


@register
@dataclass(frozen=True, slots=True)
class Characters(Constraint):
    """Between `min_characters` and `max_characters` characters, composed ones counted once, outer white space not."""

    type: ClassVar[str] = "characters"
    summary: ClassVar[str] = "The number of characters lies in a range, bounds included; spaces and marks count."

    min_characters: int = 1
    max_characters: int | None = None

    def __post_init__(self) -> None:
        names = ("min_characters", "max_characters")
        _check_range(self.min_characters, self.max_characters, names, fields.MAX_SOURCE)

    def _checks(self, text: str) -> tuple[Check, ...]:
        count = len(unicodedata.normalize("NFC", text).strip())
        return (_ranged("characters", count, self.min_characters, self.max_characters),)

    def instruction(self) -> str:
        return amount("Use", self.min_characters, self.max_characters, "character")

    def facts(self) -> Facts:
        return Facts(low=float(self.min_characters), high=float(self.max_characters or 0))

    def maximum_words(self) -> int | None:
        return None if self.max_characters is None else (self.max_characters + 1) // 2

    def usual_words(self) -> int:
        return max(1, -(-self.min_characters // _LETTERS_A_WORD))

    def minimum_characters(self) -> int:
        return self.min_characters

    def always_holds(self) -> bool:
        return self.min_characters == 1 and self.max_characters is None

    def excluded_by(self, other: Constraint) -> str | None:
        """More characters are demanded."""
        needed = other.minimum_characters()
        if self.max_characters is None or needed <= self.max_characters:
            return None
        return f"at least {needed} and at most {self.max_characters} characters are demanded"

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "min_characters": self.min_characters,
            "max_characters": self.max_characters,
        }

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return _range_schema(cls.type, ("min_characters", "max_characters"), "characters", fields.MAX_SOURCE)

    @classmethod
    def example(cls) -> Self:
        return cls(20, 80)


@register
@dataclass(frozen=True, slots=True)
class Sentences(Constraint):
    """Between `min_sentences` and `max_sentences` sentences (see `sentences`)."""

    type: ClassVar[str] = "sentences"
    summary: ClassVar[str] = "The number of sentences lies in a range, bounds included."

    min_sentences: int = 1
    max_sentences: int | None = None

    def __post_init__(self) -> None:
        names = ("min_sentences", "max_sentences")
        _check_range(self.min_sentences, self.max_sentences, names, fields.MAX_COUNT)

    def _checks(self, text: str) -> tuple[Check, ...]:
        return (_ranged("sentences", len(sentences(text)), self.min_sentences, self.max_sentences),)

    def instruction(self) -> str:
        return amount("Write", self.min_sentences, self.max_sentences, "sentence")

    def facts(self) -> Facts:
        return Facts(low=float(self.min_sentences), high=float(self.max_sentences or 0))

    def minimum_words(self) -> int:
        """A word a sentence."""
        return self.min_sentences

    def usual_words(self) -> int:
        return 1 if self.min_sentences == 1 else self.min_sentences * _WORDS_A_SENTENCE

    def excluded_by(self, other: Constraint) -> str | None:
        """Other numbers of sentences are demanded."""
        if not isinstance(other, Sentences) or self.max_sentences is None or other.min_sentences <= self.max_sentences:
            return None
        return f"at least {other.min_sentences} and at most {self.max_sentences} sentences are demanded"

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "min_sentences": self.min_sentences, "max_sentences": self.max_sentences}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return _range_schema(cls.type, ("min_sentences", "max_sentences"), "sentences", fields.MAX_COUNT)

    @classmethod
    def example(cls) -> Self:
        return cls(1, 2)
