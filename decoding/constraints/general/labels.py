"""A label among several: the text is one of them and nothing else, as a classifier answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, Facts, register
from decoding.constraints.general.substrings import compared, occurs
from decoding.constraints.text.words import normalise

_WAYS: Final = (str, str.lower, str.upper, str.title, str.capitalize)
"""How a label may be written."""


@register
@dataclass(frozen=True, slots=True)
class OneOf(Constraint):
    """The text is one of `labels`: as listed, or in lower, upper or title case, with or without a full stop.

    Partial score: the share of the text that the longest label in it takes, 0 where it holds none.
    """

    type: ClassVar[str] = "one_of"
    summary: ClassVar[str] = "The text is one of the labels and nothing else; case and a final full stop aside."

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        fields.assign(self, labels=fields.phrases(self.labels, "labels"))

    def texts(self) -> tuple[str, ...]:
        """Every text that satisfies it, outer white space aside."""
        forms = (unicodedata.normalize("NFC", way(label)) for label in self.labels for way in _WAYS)
        return tuple(dict.fromkeys(f"{form}{stop}" for form in forms for stop in ("", ".")))

    def _checks(self, text: str) -> tuple[Check, ...]:
        plain, folded = compared(text, case_sensitive=True), normalise(text)
        satisfied = plain in self.texts()
        held = [label for label in self.labels if occurs(normalise(label), folded, inside_words=False)]
        partial = max((len(normalise(label)) / len(folded) for label in held), default=0.0)
        detail = "is a label" if satisfied else f"holds {held[0]!r} and more" if held else "is none of the labels"
        return (Check.graded("one of the labels", satisfied, partial, detail),)

    def instruction(self) -> str:
        listed = f"Answer with one of: {', '.join(self.labels)}"
        return listed if listed.endswith(".") else f"{listed}."

    def facts(self) -> Facts:
        return Facts(items=self.labels)

    def required_text(self) -> tuple[str, ...]:
        return self.labels if len(self.labels) == 1 else ()

    def minimum_words(self) -> int:
        return min(len(label.split()) for label in self.labels)

    def maximum_words(self) -> int | None:
        return max(len(label.split()) for label in self.labels)

    def minimum_characters(self) -> int:
        return min(map(len, self.texts()))

    def excluded_by(self, other: Constraint) -> str | None:
        """No label meets the other constraint."""
        return None if self._fits((other,)) else "no label meets it"

    def excluded_by_all(self, members: Sequence[Constraint]) -> str | None:
        """No label meets all of them."""
        return None if self._fits(members) else "no label meets all the others; give one that does"

    def _fits(self, others: Sequence[Constraint]) -> bool:
        return any(all(other.evaluate(text).satisfied for other in others) for text in self.texts())

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "labels": list(self.labels)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        labels = fields.phrases_schema("The texts that are allowed; no two alike but for case.")
        return fields.object_schema(cls.type, {"labels": labels}, ["labels"])

    @classmethod
    def example(cls) -> Self:
        return cls(("positive", "negative", "neutral"))
