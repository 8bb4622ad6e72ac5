"""Phrases that a text holds, lacks, begins with or ends with, with the case ignored or kept.

Without the case a phrase is compared in `text.normalise` form. With it, letters and apostrophes count as they stand;
composed characters and runs of white space are still made one.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Alternatives, Check, Constraint, Facts, register
from decoding.constraints.text.words import is_word_character, normalise, quoted

_CASE = {
    "type": "boolean",
    "default": False,
    "description": "Whether the case of letters counts.",
}
_INSIDE = {
    "type": "boolean",
    "default": True,
    "description": "Whether a phrase also counts inside a longer word; false: whole words and phrases alone.",
}


def compared(text: str, *, case_sensitive: bool) -> str:
    """The form in which two strings are compared."""
    return " ".join(unicodedata.normalize("NFC", text).split()) if case_sensitive else normalise(text)


def occurs(phrase: str, text: str, *, inside_words: bool) -> bool:
    """Whether `phrase` stands in `text`, both in `compared` form; without `inside_words` between word boundaries."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        before, after = text[max(start - 1, 0) : start], text[end : end + 1]
        joined = _joined(before, phrase[0]) or _joined(phrase[-1], after)
        if inside_words or not joined:
            return True
        start = text.find(phrase, start + 1)
    return False


def _joined(left: str, right: str) -> bool:
    """Whether two neighbouring characters belong to one word; either may be missing."""
    return bool(left and right) and is_word_character(left) and is_word_character(right)


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


@dataclass(frozen=True, slots=True)
class _Phrases(Constraint):
    """Phrases and how they are compared."""

    phrases: tuple[str, ...]
    case_sensitive: bool = False
    inside_words: bool = True

    def __post_init__(self) -> None:
        fields.flag(self.case_sensitive, "case_sensitive")
        fields.flag(self.inside_words, "inside_words")
        fields.assign(self, phrases=fields.phrases(self.phrases, "phrases", exact=self.case_sensitive))

    def present(self, text: str) -> tuple[str, ...]:
        """Those of the phrases that occur in `text`."""
        plain = compared(text, case_sensitive=self.case_sensitive)
        forms = ((phrase, compared(phrase, case_sensitive=self.case_sensitive)) for phrase in self.phrases)
        return tuple(phrase for phrase, form in forms if occurs(form, plain, inside_words=self.inside_words))

    def facts(self) -> Facts:
        return Facts(items=self.phrases)

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "phrases": list(self.phrases),
            "case_sensitive": self.case_sensitive,
            "inside_words": self.inside_words,
        }

    @classmethod
    def schema(cls) -> dict[str, Any]:
        phrases = fields.phrases_schema("Words or phrases, taken literally; list each once.")
        properties = {"phrases": phrases, "case_sensitive": _CASE, "inside_words": _INSIDE}
        return fields.object_schema(cls.type, properties, ["phrases"])


@register
@dataclass(frozen=True, slots=True)
class Contains(_Phrases):
    """Every phrase occurs. The score is the share of phrases that do."""

    type: ClassVar[str] = "contains"
    summary: ClassVar[str] = "Every phrase occurs, also inside longer words unless those are ruled out."

    def _checks(self, text: str) -> tuple[Check, ...]:
        present = self.present(text)
        checks = []
        for phrase in self.phrases:
            hit = phrase in present
            checks.append(
                Check.graded(f"contains: {phrase}", hit, 0.0, f"{phrase!r} is {'there' if hit else 'missing'}")
            )
        return tuple(checks)

    def instruction(self) -> str:
        return _closed(f"The text must contain {', '.join(self.phrases)}")

    def required_text(self) -> tuple[str, ...]:
        """The phrases that do not stand inside another one."""
        forms = {phrase: compared(phrase, case_sensitive=self.case_sensitive) for phrase in self.phrases}
        return tuple(
            phrase
            for phrase, form in forms.items()
            if not any(form in other and form != other for other in forms.values())
        )

    def whole_words(self) -> tuple[Alternatives, ...]:
        return () if self.inside_words else tuple((phrase,) for phrase in self.phrases)

    def anywhere(self) -> tuple[str, ...]:
        return self.phrases

    def verbatim(self) -> tuple[str, ...]:
        return self.phrases if self.case_sensitive else ()

    def minimum_words(self) -> int:
        """White space inside a phrase alone forces more words."""
        return max(len(phrase.split()) for phrase in self.phrases)

    @classmethod
    def example(cls) -> Self:
        return cls(("order number", "refund"))


@register
@dataclass(frozen=True, slots=True)
class NotContains(_Phrases):
    """No phrase occurs. Partial score: 1 / (1 + phrases that do)."""

    type: ClassVar[str] = "not_contains"
    summary: ClassVar[str] = "No phrase occurs, nor inside longer words unless those are allowed."

    def _checks(self, text: str) -> tuple[Check, ...]:
        hits = self.present(text)
        detail = f"found {quoted(hits)}" if hits else "no forbidden phrase"
        return (Check.graded("no forbidden phrase", not hits, 1 / (1 + len(hits)), detail),)

    def instruction(self) -> str:
        return _closed(f"Do not use the words: {', '.join(self.phrases)}")

    def excluded_by(self, other: Constraint) -> str | None:
        """A phrase is demanded that is, or holds, a forbidden one."""
        demanded: list[tuple[str, ...]] = [(phrase,) for phrase in other.verbatim()]
        if not self.case_sensitive:
            # What may stand inside a word has a letter put on both sides: its ends are then no word boundaries.
            demanded += [(f"x{phrase}x",) for phrase in other.anywhere()] + list(other.whole_words())
        elif not self.inside_words:
            demanded = [(f"x{phrase}x",) for phrase in other.verbatim()]
        for phrases in demanded:
            if all(self.present(phrase) for phrase in phrases):
                return f"{self.present(phrases[0])[0]!r} is demanded and forbidden"
        return None

    @classmethod
    def example(cls) -> Self:
        return cls(("guarantee", "free of charge"))


@dataclass(frozen=True, slots=True)
class _Edge(Constraint):
    """A phrase at one end of the text."""

    phrase: str
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        fields.assign(self, phrase=fields.phrase(self.phrase, "phrase"))
        fields.flag(self.case_sensitive, "case_sensitive")

    def from_the_edge(self, text: str) -> str:
        """`text` in `compared` form, read from the edge inwards."""
        raise NotImplementedError

    def _edge_check(self, name: str, text: str) -> Check:
        wanted, edge = self.from_the_edge(self.phrase), self.from_the_edge(text)
        shared = next((at for at, (a, b) in enumerate(zip(wanted, edge, strict=False)) if a != b), len(wanted))
        shared = min(shared, len(edge))
        detail = f"{shared} of {len(wanted)} characters match"
        return Check.graded(f"{name}: {self.phrase}", edge.startswith(wanted), shared / len(wanted), detail)

    def facts(self) -> Facts:
        return Facts(items=(self.phrase,))

    def required_text(self) -> tuple[str, ...]:
        return (self.phrase,)

    def anywhere(self) -> tuple[str, ...]:
        return (self.phrase,)

    def verbatim(self) -> tuple[str, ...]:
        return (self.phrase,) if self.case_sensitive else ()

    def minimum_words(self) -> int:
        return len(self.phrase.split())

    def excluded_by(self, other: Constraint) -> str | None:
        """Another phrase at the same end, none of the two a part of the other."""
        if not isinstance(other, type(self)):
            return None
        both = self.case_sensitive and other.case_sensitive
        lenient = type(self)("x", both)
        mine, theirs = lenient.from_the_edge(self.phrase), lenient.from_the_edge(other.phrase)
        if mine.startswith(theirs) or theirs.startswith(mine):
            return None
        return f"no text has both {self.phrase!r} and {other.phrase!r} there"

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "phrase": self.phrase, "case_sensitive": self.case_sensitive}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        phrase = fields.phrase_schema("Taken literally; it may end inside a word.")
        return fields.object_schema(cls.type, {"phrase": phrase, "case_sensitive": _CASE}, ["phrase"])


@register
@dataclass(frozen=True, slots=True)
class StartsWith(_Edge):
    """The text begins with the phrase, outer white space aside. Partial score: the share of it that matches."""

    type: ClassVar[str] = "starts_with"
    summary: ClassVar[str] = "The text begins with a phrase; white space before it is ignored."

    def from_the_edge(self, text: str) -> str:
        return compared(text, case_sensitive=self.case_sensitive)

    def _checks(self, text: str) -> tuple[Check, ...]:
        return (self._edge_check("starts with", text),)

    def instruction(self) -> str:
        return _closed(f"Start with the words: {self.phrase}")

    @classmethod
    def example(cls) -> Self:
        return cls("Dear customer")


@register
@dataclass(frozen=True, slots=True)
class EndsWith(_Edge):
    """The text ends with the phrase, outer white space aside. Partial score: the share of it that matches."""

    type: ClassVar[str] = "ends_with"
    summary: ClassVar[str] = "The text ends with a phrase; white space behind it is ignored."

    def from_the_edge(self, text: str) -> str:
        return compared(text, case_sensitive=self.case_sensitive)[::-1]

    def _checks(self, text: str) -> tuple[Check, ...]:
        return (self._edge_check("ends with", text),)

    def instruction(self) -> str:
        return _closed(f"End with the words: {self.phrase}")

    @classmethod
    def example(cls) -> Self:
        return cls("Thank you.")
