"""Avoidance (Cognac): write about a topic without touching one branch of it.

The paper's predicate is on_topic and not violated. Forbidden words are always tested. On-topic is tested when
`topical` lists the words that count as being on topic (the topic's descendants in WordNet; its own name does not
count unless listed); without the list there is nothing deterministic to test it by, and the predicate is avoidance
alone. Words match whole, case ignored, with or without a final s; Cognac's code, and the paper, match substrings
("cat" in "education").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.text.phrases import matcher
from decoding.constraints.text.words import quoted

_SHOWN = 5
"""Forbidden words named in an instruction or a detail: WordNet branches hold hundreds."""


@register
@dataclass(frozen=True, slots=True)
class Avoid(Constraint):
    """No `forbidden` word (or its plural in s) occurs; with `topical`, at least one of those words does.

    Partial score: 1 / (1 + distinct forbidden words found). Raises ConstraintError when every topical word contains a
    forbidden one, so that no text can be on topic.
    """

    type: ClassVar[str] = "avoid"
    summary: ClassVar[str] = "No forbidden word occurs; where topical words are listed, one of them does."
    families: ClassVar[tuple[str, ...]] = ("cognac-avoidance",)

    topic: str
    forbidden: tuple[str, ...]
    topical: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fields.assign(
            self,
            topic=fields.phrase(self.topic, "topic"),
            forbidden=fields.phrases(self.forbidden, "forbidden", limit=fields.MAX_LEXICON),
        )
        if self.topical is None or self.topical == ():
            fields.assign(self, topical=())
            return
        fields.assign(self, topical=fields.phrases(self.topical, "topical", limit=fields.MAX_LEXICON))
        if not self._on_topic_without(self.forbidden):
            raise ConstraintError("topical", "every word contains a forbidden one; list a word that may be used")

    def allowed_topical(self, forbidden: Iterable[str]) -> tuple[str, ...]:
        """Topical words that can be written without writing a forbidden one."""
        banned = matcher(tuple(forbidden), plurals=True)
        return tuple(form for form in self.topical if not banned.occurs_in(form))

    def _on_topic_without(self, forbidden: Iterable[str]) -> bool:
        """Whether some topical word can be written without writing a forbidden one."""
        banned = matcher(tuple(forbidden), plurals=True)
        return not all(banned.occurs_in(form) for form in self.topical)

    def _checks(self, text: str) -> tuple[Check, ...]:
        hits = sorted(matcher(self.forbidden, plurals=True).matches(text))
        detail = f"found {quoted(hits[:_SHOWN])}" if hits else "no forbidden word"
        checks = [Check.graded("no forbidden word", not hits, 1 / (1 + len(hits)), detail)]
        if self.topical:
            topical = sorted(matcher(self.topical, plurals=True).matches(text))
            detail = f"found {quoted(topical[:_SHOWN])}" if topical else f"nothing about {self.topic}"
            checks.append(Check.graded(f"on topic: {self.topic}", bool(topical), 0.0, detail))
        return tuple(checks)

    def instruction(self) -> str:
        more = " and words like them" if len(self.forbidden) > _SHOWN else ""
        return f"Write about {self.topic}. Do not use the words: {', '.join(self.forbidden[:_SHOWN])}{more}."

    def facts(self) -> Facts:
        return Facts(items=self.forbidden)

    def required_text(self) -> tuple[str, ...]:
        return self.topical if len(self.topical) == 1 else ()

    def excluded_by(self, other: Constraint) -> str | None:
        """A forbidden word is demanded."""
        banned = matcher(self.forbidden, plurals=True)
        for phrases in other.whole_words():
            if all(banned.occurs_in(phrase) for phrase in phrases):
                return f"{phrases[0]!r} is demanded and forbidden"
        return None

    def excluded_by_all(self, members: Sequence[Constraint]) -> str | None:
        """Every topical word is forbidden by some member."""
        forbidden = tuple(word for member in members if isinstance(member, Avoid) for word in member.forbidden)
        if not self.topical or self._on_topic_without(forbidden):
            return None
        return "every topical word is forbidden by the avoid constraints together; list one that may be used"

    def to_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"type": self.type, "topic": self.topic, "forbidden": list(self.forbidden)}
        if self.topical:
            spec["topical"] = list(self.topical)
        return spec

    @classmethod
    def schema(cls) -> dict[str, Any]:
        topical = fields.phrases_schema(
            "Words: one of them must occur. Null tests avoidance alone.", limit=fields.MAX_LEXICON
        )
        properties = {
            "topic": fields.phrase_schema("What to write about; shown to the model."),
            "forbidden": fields.phrases_schema("Words that must not occur.", limit=fields.MAX_LEXICON),
            "topical": {**topical, "type": ["array", "null"], "default": None},
        }
        return fields.object_schema(cls.type, properties, ["topic", "forbidden"])

    @classmethod
    def example(cls) -> Self:
        return cls("animals", ("dog", "puppy"), ("cat", "horse", "bird", "cow"))
