"""IFEval's four counted instructions: keyword, letter and capital-word frequency, and no comma.

The counts are those of google-research `instruction_following_eval`, with two deliberate differences: a keyword is
matched literally (upstream compiles it as a regular expression, which a server must not do with a client's string),
and texts and keys are NFC-normalised first. `at_least` is count >= n, `less_than` is count < n.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Alternatives, Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.words import lowered, normalise, plural, required_words, treebank_tokens, written_words

AT_LEAST = "at_least"
LESS_THAN = "less_than"
RELATIONS = (AT_LEAST, LESS_THAN)


def _bound(relation: object, count: object) -> None:
    chosen = fields.choice(relation, "relation", RELATIONS)
    if chosen == LESS_THAN and type(count) is int and count == 0:
        raise ConstraintError("count", "is 0: no text has less than 0; use 1 to forbid it")
    fields.integer(count, "count", low=1)


def _compared(name: str, occurrences: int, relation: str, count: int) -> Check:
    """Partial score: occurrences / count when too few, count / (occurrences + 1) when too many."""
    satisfied = occurrences >= count if relation == AT_LEAST else occurrences < count
    partial = occurrences / count if relation == AT_LEAST else count / (occurrences + 1)
    return Check.graded(name, satisfied, partial, f"found {occurrences}, wanted {_wanted(relation, count)}")


def _wanted(relation: str, count: int) -> str:
    return f"{relation.replace('_', ' ')} {count}"


def _times(relation: str, count: int) -> str:
    return f"{relation.replace('_', ' ')} {plural(count, 'time')}"


def _comparison_schema() -> dict[str, Any]:
    count = fields.count_schema(1, "The number that the occurrences are compared with.")
    return {
        "relation": {"enum": list(RELATIONS), "description": "at_least: >= count; less_than: < count."},
        "count": count,
    }


def _crossed(demanded: int, bound: int, what: str) -> str | None:
    if demanded >= bound:
        return f"at least {demanded} and less than {bound} {what} are demanded"
    return None


def _contained(key: str, phrases: Alternatives) -> int:
    """Occurrences of `key` that any of `phrases` brings along; 0 beyond ASCII, where case changes lengths."""
    key = key.lower()
    if all(normalise(phrase) == normalise(key) for phrase in phrases):
        return 1
    if not key.isascii() or not all(phrase.isascii() for phrase in phrases):
        return 0
    return min(phrase.lower().count(key) for phrase in phrases)


def _contained_in_words(key: str, demanded: Sequence[Alternatives]) -> int:
    """Occurrences of `key` in the whole words that a constraint demands."""
    total, counted = 0, set[str]()
    for phrases in demanded:
        words = frozenset(word for phrase in phrases for word in required_words(phrase))
        if words & counted:  # a word shared with an earlier phrase may be the same occurrence
            continue
        counted |= words
        total += _contained(key, phrases)
    return total


def _contained_in_any(key: str, other: Constraint) -> int:
    """Occurrences of `key` in what `other` demands: in all its whole words, or in one string that may be inside one."""
    strings = (_contained(key, (phrase,)) for phrase in other.anywhere())
    return max(_contained_in_words(key, other.whole_words()), *strings, 0)


@register
@dataclass(frozen=True, slots=True)
class KeywordFrequency(Constraint):
    """Non-overlapping occurrences of `keyword` anywhere, inside words too, case ignored ("war" counts in "Warsaw")."""

    type: ClassVar[str] = "keyword_frequency"
    summary: ClassVar[str] = (
        "A keyword occurs at least, or less than, so many times; it also counts inside longer words."
    )
    families: ClassVar[tuple[str, ...]] = ("ifeval-kw-freq",)

    keyword: str
    relation: str
    count: int

    def __post_init__(self) -> None:
        fields.assign(self, keyword=fields.phrase(self.keyword, "keyword"))
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        plain = unicodedata.normalize("NFC", text)
        occurrences = len(re.findall(re.escape(self.keyword), plain, re.IGNORECASE))
        name = f"keyword {self.keyword}: {_wanted(self.relation, self.count)}"
        return (_compared(name, occurrences, self.relation, self.count),)

    def instruction(self) -> str:
        return f"Use the word {self.keyword} {_times(self.relation, self.count)}."

    def facts(self) -> Facts:
        return Facts((self.keyword,), float(self.count), at_least=int(self.relation == AT_LEAST))

    def required_text(self) -> tuple[str, ...]:
        return (self.keyword,) * (self.count if self.relation == AT_LEAST else 0)

    def anywhere(self) -> tuple[str, ...]:
        return (self.keyword,) if self.relation == AT_LEAST else ()

    def minimum_words(self) -> int:
        if self.relation == LESS_THAN:
            return 1
        # "warwar" holds "war" twice in one word; only white space inside the keyword forces more words.
        return max(0, len(written_words(self.keyword)) - 1) * self.count + 1

    def excluded_by(self, other: Constraint) -> str | None:
        """More occurrences are demanded: of a keyword that holds this one, or in demanded words."""
        if self.relation != LESS_THAN:
            return None
        demanded = _contained_in_any(self.keyword, other)
        if isinstance(other, KeywordFrequency) and other.relation == AT_LEAST:
            demanded = other.count * _contained(self.keyword, (other.keyword,))
        return _crossed(demanded, self.count, f"occurrences of {self.keyword!r}")

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "keyword": self.keyword, "relation": self.relation, "count": self.count}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        keyword = fields.phrase_schema("Matched literally, case ignored, without word boundaries.")
        return fields.object_schema(
            cls.type, {"keyword": keyword, **_comparison_schema()}, ["keyword", "relation", "count"]
        )

    @classmethod
    def example(cls) -> Self:
        return cls("forest", AT_LEAST, 3)


@register
@dataclass(frozen=True, slots=True)
class LetterFrequency(Constraint):
    """Occurrences of one character, case ignored. Marks such as "#" count as they stand; white space is refused."""

    type: ClassVar[str] = "letter_frequency"
    summary: ClassVar[str] = "A letter occurs at least, or less than, so many times; case is ignored."
    families: ClassVar[tuple[str, ...]] = ("ifeval-letter-freq",)

    letter: str
    relation: str
    count: int

    def __post_init__(self) -> None:
        letter = fields.phrase(self.letter, "letter")
        if len(letter) != 1:
            raise ConstraintError("letter", f"is {letter[:20]!r}; give exactly one character")
        fields.assign(self, letter=lowered(letter) if len(lowered(letter)) == 1 else letter)
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        occurrences = lowered(text).count(lowered(self.letter))
        name = f"letter {self.letter}: {_wanted(self.relation, self.count)}"
        return (_compared(name, occurrences, self.relation, self.count),)

    def instruction(self) -> str:
        return f"Use the letter {self.letter} {_times(self.relation, self.count)}."

    def facts(self) -> Facts:
        return Facts((self.letter,), float(self.count), at_least=int(self.relation == AT_LEAST))

    def anywhere(self) -> tuple[str, ...]:
        return (self.letter,) if self.relation == AT_LEAST else ()

    def excluded_by(self, other: Constraint) -> str | None:
        """More occurrences are demanded: of the letter, of a keyword that holds it, or in demanded words."""
        if self.relation != LESS_THAN:
            return None
        demanded = _contained_in_any(self.letter, other)
        if isinstance(other, LetterFrequency) and other.relation == AT_LEAST:
            demanded = other.count * int(other.letter.lower() == self.letter.lower())
        elif isinstance(other, KeywordFrequency) and other.relation == AT_LEAST:
            demanded = other.count * _contained(self.letter, (other.keyword,))
        return _crossed(demanded, self.count, f"occurrences of {self.letter!r}")

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "letter": self.letter, "relation": self.relation, "count": self.count}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        letter = {"type": "string", "minLength": 1, "maxLength": fields.MAX_PHRASE, "description": "One character."}
        return fields.object_schema(
            cls.type, {"letter": letter, **_comparison_schema()}, ["letter", "relation", "count"]
        )

    @classmethod
    def example(cls) -> Self:
        return cls("o", AT_LEAST, 6)


@register
@dataclass(frozen=True, slots=True)
class CapitalFrequency(Constraint):
    """Treebank tokens in capitals (`str.isupper`): "I", "U.S." and "STATE-OF-THE-ART" count 1, "DON'T" 2, "123" 0."""

    type: ClassVar[str] = "capital_frequency"
    summary: ClassVar[str] = "At least, or less than, so many words are written in capital letters."
    families: ClassVar[tuple[str, ...]] = ("ifeval-capital-freq",)

    relation: str
    count: int

    def __post_init__(self) -> None:
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        occurrences = sum(token.isupper() for token in treebank_tokens(text))
        name = f"capital words: {_wanted(self.relation, self.count)}"
        return (_compared(name, occurrences, self.relation, self.count),)

    def instruction(self) -> str:
        return f"Write {self.relation.replace('_', ' ')} {plural(self.count, 'word')} in capital letters."

    def facts(self) -> Facts:
        return Facts(low=float(self.count), at_least=int(self.relation == AT_LEAST))

    def minimum_words(self) -> int:
        """Half the count, as one word may hold two tokens ("CANNOT" is CAN and NOT)."""
        return max(1, -(-self.count // 2)) if self.relation == AT_LEAST else 1

    def excluded_by(self, other: Constraint) -> str | None:
        """More words in capitals are demanded."""
        if not isinstance(other, CapitalFrequency) or (other.relation, self.relation) != (AT_LEAST, LESS_THAN):
            return None
        return _crossed(other.count, self.count, "capital words")

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "relation": self.relation, "count": self.count}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(cls.type, _comparison_schema(), ["relation", "count"])

    @classmethod
    def example(cls) -> Self:
        return cls(AT_LEAST, 2)


@register
@dataclass(frozen=True, slots=True)
class NoComma(Constraint):
    """No ASCII comma (U+002C), in numbers neither; other scripts' commas are allowed."""

    type: ClassVar[str] = "no_comma"
    summary: ClassVar[str] = "The text contains no comma."
    families: ClassVar[tuple[str, ...]] = ("ifeval-no-comma",)

    def _checks(self, text: str) -> tuple[Check, ...]:
        commas = text.count(",")
        return (Check.graded("no comma", not commas, 1 / (1 + commas), f"found {plural(commas, 'comma')}"),)

    def instruction(self) -> str:
        return "Do not use any commas."

    def excluded_by(self, other: Constraint) -> str | None:
        """A phrase with a comma is demanded."""
        demanded = (*other.whole_words(), *((phrase,) for phrase in other.anywhere()))
        with_comma = next((phrases[0] for phrases in demanded if all("," in phrase for phrase in phrases)), None)
        return f"{with_comma!r} contains a comma" if with_comma else None

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(cls.type, {}, [])

    @classmethod
    def example(cls) -> Self:
        return cls()
