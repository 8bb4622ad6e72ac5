"""IFEval's four counted instructions: keyword, letter and capital-word frequency, and no comma.

The counts are those of google-research `instruction_following_eval`, with two deliberate differences: a keyword is
matched literally (upstream compiles it as a regular expression, which a server must not do with a client's string),
and texts and keys are NFC-normalised first. `at_least` is count >= n, `less_than` is count < n.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints import fields
from decoding.constraints.base import Check, ConstraintError, Predicate
from decoding.constraints.text import plural, treebank_tokens

AT_LEAST = "at_least"
LESS_THAN = "less_than"
RELATIONS = (AT_LEAST, LESS_THAN)


def _bound(relation: object, count: object) -> None:
    chosen = fields.choice(relation, "relation", RELATIONS)
    if chosen == LESS_THAN and type(count) is int and count == 0:
        raise ConstraintError("count", "is 0: no text has less than 0; use 1 to forbid it")
    fields.integer(count, "count", low=1)


def _compared(name: str, found: int, relation: str, count: int) -> Check:
    """Partial score: found / count when too few, count / (found + 1) when too many."""
    satisfied = found >= count if relation == AT_LEAST else found < count
    partial = found / count if relation == AT_LEAST else count / (found + 1)
    return Check.graded(name, satisfied, partial, f"found {found}, wanted {_wanted(relation, count)}")


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


@dataclass(frozen=True, slots=True)
class KeywordFrequency(Predicate):
    """Non-overlapping occurrences of `keyword` anywhere, inside words too, case ignored ("war" counts in "Warsaw")."""

    type: ClassVar[str] = "keyword_frequency"
    summary: ClassVar[str] = (
        "A keyword occurs at least, or less than, so many times; it also counts inside longer words."
    )

    keyword: str
    relation: str
    count: int

    def __post_init__(self) -> None:
        fields.assign(self, keyword=fields.phrase(self.keyword, "keyword"))
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        plain = unicodedata.normalize("NFC", text)
        found = len(re.findall(re.escape(self.keyword), plain, re.IGNORECASE))
        name = f"keyword {self.keyword}: {_wanted(self.relation, self.count)}"
        return (_compared(name, found, self.relation, self.count),)

    @property
    def family(self) -> str | None:
        return "ifeval-kw-freq"

    def instruction(self) -> str:
        return f"Use the word {self.keyword} {_times(self.relation, self.count)}."

    def required_text(self) -> tuple[str, ...]:
        return (self.keyword,) * (self.count if self.relation == AT_LEAST else 0)

    def minimum_words(self) -> int:
        if self.relation == LESS_THAN:
            return 1
        # "warwar" holds "war" twice in one word; only white space inside the keyword forces more words.
        return (len(self.keyword.split()) - 1) * self.count + 1

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


@dataclass(frozen=True, slots=True)
class LetterFrequency(Predicate):
    """Occurrences of one character, case ignored. Marks such as "#" count as they stand; white space is refused."""

    type: ClassVar[str] = "letter_frequency"
    summary: ClassVar[str] = "A letter occurs at least, or less than, so many times; case is ignored."

    letter: str
    relation: str
    count: int

    def __post_init__(self) -> None:
        letter = fields.phrase(self.letter, "letter")
        if len(letter) != 1:
            raise ConstraintError("letter", f"is {letter[:20]!r}; give exactly one character")
        fields.assign(self, letter=letter.lower() if len(letter.lower()) == 1 else letter)
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        found = unicodedata.normalize("NFC", text).lower().count(self.letter.lower())
        name = f"letter {self.letter}: {_wanted(self.relation, self.count)}"
        return (_compared(name, found, self.relation, self.count),)

    @property
    def family(self) -> str | None:
        return "ifeval-letter-freq"

    def instruction(self) -> str:
        return f"Use the letter {self.letter} {_times(self.relation, self.count)}."

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


@dataclass(frozen=True, slots=True)
class CapitalFrequency(Predicate):
    """Treebank tokens in capitals (`str.isupper`): "I", "U.S." and "STATE-OF-THE-ART" count 1, "DON'T" 2, "123" 0."""

    type: ClassVar[str] = "capital_frequency"
    summary: ClassVar[str] = "At least, or less than, so many words are written in capital letters."

    relation: str
    count: int

    def __post_init__(self) -> None:
        _bound(self.relation, self.count)

    def _checks(self, text: str) -> tuple[Check, ...]:
        found = sum(token.isupper() for token in treebank_tokens(text))
        return (_compared(f"capital words: {_wanted(self.relation, self.count)}", found, self.relation, self.count),)

    @property
    def family(self) -> str | None:
        return "ifeval-capital-freq"

    def instruction(self) -> str:
        return f"Write {self.relation.replace('_', ' ')} {plural(self.count, 'word')} in capital letters."

    def minimum_words(self) -> int:
        """Half the count, as one word may hold two tokens ("CANNOT" is CAN and NOT)."""
        return max(1, -(-self.count // 2)) if self.relation == AT_LEAST else 1

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "relation": self.relation, "count": self.count}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(cls.type, _comparison_schema(), ["relation", "count"])

    @classmethod
    def example(cls) -> Self:
        return cls(AT_LEAST, 2)


@dataclass(frozen=True, slots=True)
class NoComma(Predicate):
    """No ASCII comma (U+002C), in numbers neither; other scripts' commas are allowed."""

    type: ClassVar[str] = "no_comma"
    summary: ClassVar[str] = "The text contains no comma."

    def _checks(self, text: str) -> tuple[Check, ...]:
        commas = text.count(",")
        return (Check.graded("no comma", not commas, 1 / (1 + commas), f"found {plural(commas, 'comma')}"),)

    @property
    def family(self) -> str | None:
        return "ifeval-no-comma"

    def instruction(self) -> str:
        return "Do not use any commas."

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return fields.object_schema(cls.type, {}, [])

    @classmethod
    def example(cls) -> Self:
        return cls()
