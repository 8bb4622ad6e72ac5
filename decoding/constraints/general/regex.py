"""A regular expression that the text matches, in a part or as a whole; see `patterns` for the dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, register
from decoding.constraints.general import patterns

SEARCH, FULL = "search", "full"
MODES: Final = (SEARCH, FULL)
MAX_MEANING: Final = 200


@register
@dataclass(frozen=True, slots=True)
class Regex(Constraint):
    """The pattern occurs (mode "search"), or matches the text without its outer white space (mode "full").

    Partial score: a half where the whole should match and a part does. `meaning` says in words what the pattern
    matches; the instruction then has it in the pattern's place, as few models read patterns well.
    """

    type: ClassVar[str] = "regex"
    summary: ClassVar[str] = "A regular expression matches a part of the text, or all of it."

    pattern: str
    mode: str = SEARCH
    meaning: str | None = None

    def __post_init__(self) -> None:
        patterns.checked(self.pattern, "pattern")
        fields.choice(self.mode, "mode", MODES)
        if self.meaning is not None:
            meaning = fields.text(self.meaning, "meaning", limit=MAX_MEANING)
            fields.assign(self, meaning=" ".join(meaning.split()))

    def _checks(self, text: str) -> tuple[Check, ...]:
        pattern, stripped = patterns.pattern_of(self.pattern), text.strip()
        occurs = pattern.occurs(stripped)
        satisfied = pattern.matches(stripped) if self.mode == FULL else occurs
        detail = "matches" if satisfied else "a part matches, not the whole" if occurs else "does not match"
        return (Check.graded(f"pattern: {self.pattern}", satisfied, 0.5 * occurs, detail),)

    def instruction(self) -> str:
        whole = self.mode == FULL
        if self.meaning is not None:
            said = f"The text must {'be' if whole else 'contain'} {self.meaning}"
        else:
            said = f"The {'whole text' if whole else 'text'} must match the pattern {self.pattern}"
        return said if said.endswith(".") else f"{said}."

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "pattern": self.pattern, "mode": self.mode, "meaning": self.meaning}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        pattern = {"type": "string", "minLength": 1, "maxLength": patterns.MAX_PATTERN}
        properties = {
            "pattern": {**pattern, "description": "ECMA 262, without back references and look-around."},
            "mode": {
                "enum": list(MODES),
                "default": SEARCH,
                "description": "search: some part matches; full: the whole text does, outer white space aside.",
            },
            "meaning": {
                "type": ["string", "null"],
                "minLength": 1,
                "maxLength": MAX_MEANING,
                "default": None,
                "description": "What the pattern matches, in words, for the prompt: 'a date such as 2024-05-31'.",
            },
        }
        return fields.object_schema(cls.type, properties, ["pattern"])

    @classmethod
    def example(cls) -> Self:
        return cls(r"\b\d{4}-\d{2}-\d{2}\b", SEARCH, "a date such as 2024-05-31")
