"""COLLIE's sentence families c07 (words that must occur) and c06a (many words, none long).

Words are NLTK treebank tokens without single punctuation marks (see `text.collie_words`), so "can't" is the two words
"ca" and "n't". Nothing checks that the text is one sentence; neither does COLLIE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Alternatives, Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.words import (
    collie_form,
    collie_words,
    least_words_of,
    longest_collie_word,
    plural,
    quoted,
)

_CONTEXTS = ("{}", "a {} a", "a{} a", "{} .")
"""Surroundings in which a word may stand; one that is no token in any of them can never be met."""


@register
@dataclass(frozen=True, slots=True)
class CollieC07(Constraint):
    """Every one of `words` is a word of the text: whole tokens, case and outer punctuation ignored, no inflections.

    Order and number do not matter; COLLIE's own lists repeat words, so repeats are allowed and one occurrence meets
    both. Raises ConstraintError for an entry that the tokeniser never yields as one word ("can't": ask for "ca" and
    "n't").
    """

    type: ClassVar[str] = "collie_c07"
    summary: ClassVar[str] = "Every given word is a word of the text (whole tokens; clitics such as n't are words)."
    families: ClassVar[tuple[str, ...]] = ("collie-c07",)

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        items = fields.array(self.words, "words", limit=fields.MAX_KEYWORDS)
        words = tuple(fields.phrase(word, f"words[{index}]") for index, word in enumerate(items))
        for index, word in enumerate(words):
            if not _is_token(word):
                parts = quoted(collie_words(word)) or "nothing"
                raise ConstraintError(
                    f"words[{index}]", f"{word!r} is never one word: it is split into {parts}; list those"
                )
        fields.assign(self, words=words)

    def _checks(self, text: str) -> tuple[Check, ...]:
        present = {collie_form(word) for word in collie_words(text)}
        checks = []
        for word in dict.fromkeys(self.words):
            hit = collie_form(word) in present
            checks.append(Check.graded(f"word: {word}", hit, 0.0, f"{word!r} is {'there' if hit else 'missing'}"))
        return tuple(checks)

    def instruction(self) -> str:
        return f"The text must contain {', '.join(self.words)}."

    def facts(self) -> Facts:
        return Facts(items=self.words)

    def required_text(self) -> tuple[str, ...]:
        return tuple({collie_form(word): word for word in self.words}.values())

    def whole_words(self) -> tuple[Alternatives, ...]:
        return tuple((word,) for word in self.words)

    def minimum_words(self) -> int:
        """Distinct words, two to a written word ("cannot"), not counting those that hang on another ("n't", "'s")."""
        own = {collie_form(word) for word in self.words if least_words_of([(word,)])}
        return max(1, -(-len(own) // 2))

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "words": list(self.words)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(
            cls.type, {"words": fields.phrases_schema("Single words that must occur.")}, ["words"]
        )

    @classmethod
    def example(cls) -> Self:
        return cls(("have", "rising", "the"))


@register
@dataclass(frozen=True, slots=True)
class CollieC06a(Constraint):
    """At least `min_words` words, each of at most `max_chars` characters (inner hyphens and apostrophes included)."""

    type: ClassVar[str] = "collie_c06a"
    summary: ClassVar[str] = "At least so many words, none of them longer than so many characters."
    families: ClassVar[tuple[str, ...]] = ("collie-c06a",)

    min_words: int
    max_chars: int

    def __post_init__(self) -> None:
        fields.integer(self.min_words, "min_words", low=1)
        fields.integer(self.max_chars, "max_chars", low=1, high=1000)

    def _checks(self, text: str) -> tuple[Check, ...]:
        words = collie_words(text)
        long = [word for word in words if len(word) > self.max_chars]
        share = 1 - len(long) / max(len(words), 1)
        shown = f"too long: {quoted(long[:5])}" if long else "no word is too long"
        wanted = f"at least {plural(self.min_words, 'word')}"
        return (
            Check.graded(wanted, len(words) >= self.min_words, len(words) / self.min_words, plural(len(words), "word")),
            Check.graded(f"words of at most {plural(self.max_chars, 'character')}", not long, share, shown),
        )

    def instruction(self) -> str:
        limit = plural(self.max_chars, "character")
        return f"Use at least {plural(self.min_words, 'word')}. Use only words with at most {limit}."

    def facts(self) -> Facts:
        return Facts(low=float(self.min_words), high=float(self.max_chars))

    def minimum_words(self) -> int:
        """Half of `min_words`, as one written word may hold two of COLLIE's ("can't", "cannot")."""
        return -(-self.min_words // 2)

    def excluded_by(self, other: Constraint) -> str | None:
        """A longer word is demanded."""
        demanded = (*other.whole_words(), *((phrase,) for phrase in other.anywhere() if phrase.isalnum()))
        for phrases in demanded:
            if all(phrase.isascii() and longest_collie_word(phrase) > self.max_chars for phrase in phrases):
                return f"{phrases[0]!r} has more than {plural(self.max_chars, 'character')}"
        return None

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "min_words": self.min_words, "max_chars": self.max_chars}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        properties = {
            "min_words": fields.count_schema(1, "Fewest words."),
            "max_chars": fields.count_schema(1, "Most characters of a word.", 1000),
        }
        return fields.object_schema(cls.type, properties, ["min_words", "max_chars"])

    @classmethod
    def example(cls) -> Self:
        return cls(10, 6)


def _is_token(word: str) -> bool:
    form = collie_form(word)
    if " " in word:
        return False
    return any(form in map(collie_form, collie_words(context.format(word))) for context in _CONTEXTS)
