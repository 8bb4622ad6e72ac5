"""JSON: the text is one JSON value, which may have to meet a JSON Schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NoReturn, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, register
from decoding.constraints.json import schema as schemas

MAX_TEXT: Final = 100_000
"""Characters of a text that is read."""
_LETTERS_A_WORD: Final = 4
"""Characters of JSON that take about as many tokens as a word; a canvas is chosen by it."""


class Unreadable(ValueError):
    """A text that is no JSON; `read` is the share of it before the fault."""

    def __init__(self, reason: str, read: float = 0.0) -> None:
        super().__init__(reason)
        self.read = read


def read(text: str) -> Any:
    """The value of a JSON text, white space around it aside.

    Raises Unreadable, also for NaN, for infinite or very long numbers, and for more than `MAX_DEPTH` levels.
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(f"has more than {MAX_TEXT} characters")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_integer, parse_float=_number)
    except json.JSONDecodeError as error:
        raise Unreadable(f"{error.msg} at character {error.pos + 1}", error.pos / max(len(text), 1)) from None
    except RecursionError:
        raise Unreadable(f"is nested deeper than {schemas.MAX_DEPTH}") from None
    if not schemas.check_depth(value):
        raise Unreadable(f"is nested deeper than {schemas.MAX_DEPTH}")
    return value


def _refuse(name: str) -> NoReturn:
    raise Unreadable(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > schemas.LARGEST_NUMBER:
        raise Unreadable("a number is too large")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Unreadable("a number is too large")
    return value


@register
@dataclass(frozen=True, slots=True)
class Json(Constraint):
    """The text is JSON and, with `json_schema`, its value meets that schema.

    Partial scores: the share of the text before the first fault; 1 / (1 + errors) under the schema. Raises
    ConstraintError for schemas beyond what `schemas.checked` takes, and for those that no value meets.
    """

    type: ClassVar[str] = "json"
    summary: ClassVar[str] = "The text is one JSON value; with a JSON Schema, one that meets it."

    json_schema: Mapping[str, Any] | None = field(default=None, compare=False)
    schema_text: str | None = field(default=None, init=False, repr=False)
    """The schema as JSON with sorted names, by which two constraints are compared."""

    def __post_init__(self) -> None:
        if self.json_schema is None:
            return
        try:
            schema = schemas.checked(self.json_schema)
        except ConstraintError as error:
            raise error.under("json_schema") from None
        fields.assign(self, json_schema=schema, schema_text=json.dumps(schema, sort_keys=True, separators=(",", ":")))

    def _checks(self, text: str) -> tuple[Check, ...]:
        try:
            value = read(text)
        except Unreadable as fault:
            parsed = Check.graded("is JSON", False, fault.read, str(fault))
            rest = Check.graded("matches the schema", False, 0.0, "the text is no JSON")
        else:
            parsed = Check.graded("is JSON", True, 1.0, "is JSON")
            rest = self._schema_check(value)
        return (parsed,) if self.schema_text is None else (parsed, rest)

    def _schema_check(self, value: object) -> Check:
        try:
            count, first = schemas.errors(self.schema_text or "{}", value)
        except schemas.TooCostly:
            return Check.graded("matches the schema", False, 0.0, "the schema takes too many steps on this text")
        return Check.graded("matches the schema", not count, 1 / (1 + count), first or "meets the schema")

    def instruction(self) -> str:
        if self.json_schema is None:
            return "Answer in JSON."
        return f"Answer in JSON that matches this schema: {json.dumps(self.json_schema, ensure_ascii=False)}."

    def minimum_characters(self) -> int:
        return schemas.least_characters(self.json_schema)

    def usual_words(self) -> int:
        return max(1, self.minimum_characters() // _LETTERS_A_WORD)

    def to_spec(self) -> dict[str, Any]:
        schema = None if self.json_schema is None else json.loads(json.dumps(self.json_schema))
        return {"type": self.type, "json_schema": schema}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        schema = {
            "type": ["object", "null"],
            "default": None,
            "description": f"JSON Schema, draft 2020-12, of at most {schemas.MAX_SCHEMA} characters; references "
            f"within it alone. Keywords: {', '.join(schemas.KEYWORDS)}; formats: {', '.join(schemas.FORMATS)}.",
        }
        return fields.object_schema(cls.type, {"json_schema": schema}, [])

    @classmethod
    def example(cls) -> Self:
        properties = {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}
        return cls({"type": "object", "properties": properties, "required": ["name", "age"]})
