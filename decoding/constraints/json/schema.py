"""The part of JSON Schema (draft 2020-12) that requests may use, checked before anything is validated with it.

A schema comes from a client and is worked through in a server. So its size and depth are bounded, every keyword must be
known (a misspelt one would allow everything in silence), references stay inside it, patterns run in linear time (see
`patterns`), and a validation that takes more than `MAX_STEPS` keyword applications fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import jsonschema
from jsonschema import validators

from decoding.constraints.base.constraint import ConstraintError
from decoding.constraints.general.patterns import checked as checked_pattern
from decoding.constraints.general.patterns import pattern_of

MAX_SCHEMA: Final = 10_000
"""Characters of a schema as compact JSON."""
MAX_DEPTH: Final = 24
"""Objects and arrays within each other, in a schema and in a text."""
MAX_STEPS: Final = 5_000
"""Keyword applications of one validation; only nested alternatives with references need many."""
MAX_ERRORS: Final = 50
"""Errors that are counted."""
LARGEST_NUMBER: Final = 2**63
FORMATS: Final = ("date", "email", "ipv4", "ipv6", "uuid")

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ONE: Final = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
"""Keywords whose value is a schema."""
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS: Final = ("$defs", "properties")
_RANGES: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
}
KEYWORDS: Final = (
    *("type", "enum", "const", "properties", "required", "additionalProperties", "propertyNames"),
    *("minProperties", "maxProperties", "items", "prefixItems", "contains", "minContains", "maxContains", "minItems"),
    *("maxItems", "uniqueItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("$ref", "$defs", "$schema", "$comment", "title", "description", "default", "examples"),
)

Keyword = Callable[[Any, Any, Any, Any], Iterable[jsonschema.ValidationError] | None]
_steps_left: ContextVar[list[int]] = ContextVar("steps_left")


class TooCostly(Exception):
    """A validation that takes more than `MAX_STEPS`, or that refers to itself without end."""


# -- checking a schema ----------------------------------------------------------------------------------------------


def checked(value: object) -> dict[str, Any]:
    """A copy of `value`. Raises ConstraintError, with the path of the fault, for a schema that requests may not use."""
    if not isinstance(value, Mapping):
        raise ConstraintError("", "must be an object, or null")
    check_json(value)
    text = json.dumps(value, separators=(",", ":"))
    if len(text) > MAX_SCHEMA:
        raise ConstraintError("", f"has {len(text)} characters; at most {MAX_SCHEMA} are allowed")
    schema: dict[str, Any] = json.loads(text)
    for place, part in _parts(schema, ""):
        _check_part(part, place, schema)
    try:
        _Validator.check_schema(schema, format_checker=None)
    except jsonschema.SchemaError as error:
        raise ConstraintError(_path(error.absolute_path), f"is no JSON Schema: {error.message[:200]}") from None
    if reason := _impossible_within_steps(schema, text):
        raise ConstraintError("", f"is met by no value: {reason}")
    return schema


def check_json(value: object) -> None:
    """Raise ConstraintError for what cannot be written as JSON, is nested too deeply, or holds too large a number."""
    waiting = [("", value, 1)]
    while waiting:
        place, item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ConstraintError("", f"is nested deeper than {MAX_DEPTH}")
        if isinstance(item, Mapping):
            for name, inner in item.items():
                _check_text(name, place)
                waiting.append((f"{place}.{name}".lstrip("."), inner, depth + 1))
        elif isinstance(item, (list, tuple)):
            waiting += [(f"{place}[{index}]", inner, depth + 1) for index, inner in enumerate(item)]
        elif isinstance(item, str):
            _check_text(item, place)
        elif isinstance(item, (int, float)):
            if not abs(item) <= LARGEST_NUMBER:  # NaN is refused with it
                raise ConstraintError(place, "is too large a number, or none")
        elif item is not None:
            raise ConstraintError(place, f"is a {type(item).__name__}, which JSON does not have")


def _check_text(text: object, place: str) -> None:
    if not isinstance(text, str):
        raise ConstraintError(place, "has a name that is no string")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConstraintError(place, "holds a lone surrogate; remove it")


def _parts(schema: object, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and all schemas inside it, with their paths; values that are none are left to the meta-schema."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for name, value in schema.items():
        inner = f"{place}.{name}".lstrip(".")
        if name in _ONE:
            yield from _parts(value, inner)
        elif name in _LISTS and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _parts(part, f"{inner}[{index}]")
        elif name in _MAPS and isinstance(value, dict):
            for key, part in value.items():
                yield from _parts(part, f"{inner}.{key}")


def _check_part(schema: dict[str, Any], place: str, root: dict[str, Any]) -> None:
    for name in schema:
        if name not in KEYWORDS:
            raise ConstraintError(place, f"uses {name[:40]!r}, which is not among the keywords: {', '.join(KEYWORDS)}")
    if schema.get("$schema", _DIALECT) != _DIALECT:
        raise ConstraintError(f"{place}.$schema".lstrip("."), f"must be {_DIALECT}, or left out")
    reference = schema.get("$ref", "#")
    known = ("#", *(f"#/$defs/{name}" for name in _definitions(root) if not set(name) & set("~%/")))
    if reference not in known:
        raise ConstraintError(f"{place}.$ref".lstrip("."), f"must be one of {', '.join(known)[:200]}")
    if "pattern" in schema:
        checked_pattern(schema["pattern"], f"{place}.pattern".lstrip("."))
    if schema.get("format", FORMATS[0]) not in FORMATS:
        raise ConstraintError(f"{place}.format".lstrip("."), f"must be one of {', '.join(FORMATS)}")


def _definitions(root: dict[str, Any]) -> Iterable[str]:
    definitions = root.get("$defs")
    return definitions if isinstance(definitions, dict) else ()


def _path(parts: Iterable[object]) -> str:
    """A path as errors name it: `properties.name.minLength`, `allOf[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


# -- what a schema demands ------------------------------------------------------------------------------------------


def _impossible_within_steps(schema: object, text: str) -> str | None:
    """`impossible` of a whole schema, all of whose listed values have `MAX_STEPS` together; raises ConstraintError."""
    token = _steps_left.set([MAX_STEPS])
    try:
        return impossible(schema, validator_of(text))
    except (TooCostly, RecursionError):
        message = f"takes more than {MAX_STEPS} steps to try its own values; list fewer, or refer to less"
        raise ConstraintError("", message) from None
    finally:
        _steps_left.reset(token)


def impossible(schema: object, validator: Any) -> str | None:
    """Why no value meets `schema`; None where one may. Only certain reasons are given. Raises TooCostly."""
    if schema is False:
        return "it is false"
    if not isinstance(schema, dict):
        return None
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None:
        own = validator.evolve(schema={name: part for name, part in schema.items() if name != "$defs"})
        return None if any(own.is_valid(value) for value in allowed) else "no listed value meets the rest of it"
    kind = schema.get("type")
    low, high = _RANGES.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
    if low in schema and high in schema and schema[low] > schema[high]:
        return f"{low} {schema[low]} is above {high} {schema[high]}"
    return _impossible_object(schema, validator) if kind == "object" else None


def _impossible_object(schema: dict[str, Any], validator: Any) -> str | None:
    required, properties = schema.get("required", []), schema.get("properties", {})
    if len(required) > schema.get("maxProperties", len(required)):
        return f"{len(required)} properties are required, maxProperties is {schema['maxProperties']}"
    for name in required:
        if name not in properties and schema.get("additionalProperties") is False:
            return f"{name!r} is required and not among the properties"
        if reason := impossible(properties.get(name), validator):
            return f"{name!r} is required, and {reason}"
    return None


def least_characters(schema: object) -> int:
    """Lower bound on the characters of a JSON text that meets `schema`."""
    if not isinstance(schema, dict):
        return 1
    if "const" in schema or "enum" in schema:
        return min(
            (_length(value) for value in ([schema["const"]] if "const" in schema else schema["enum"])), default=1
        )
    kinds = schema.get("type")
    listed = [kinds] if isinstance(kinds, str) else kinds
    return min(_least_of(kind, schema) for kind in listed) if listed else 1


def _least_of(kind: str, schema: dict[str, Any]) -> int:
    if kind == "object":
        names, properties = schema.get("required", []), schema.get("properties", {})
        # A name stands in quotes, before a colon and behind a comma or brace.
        return 2 + sum(len(name) + 4 + least_characters(properties.get(name)) for name in names) - bool(names)
    if kind == "array":
        count = int(schema.get("minItems", 0))
        return 2 + count * (1 + least_characters(schema.get("items"))) - bool(count)
    return {"string": 2 + int(schema.get("minLength", 0)), "boolean": 4, "null": 4}.get(kind, 1)


def _length(value: object) -> int:
    return len(value) + 2 if isinstance(value, str) else 4 if value is None or isinstance(value, bool) else 1


# -- validating -----------------------------------------------------------------------------------------------------


def errors(text: str, value: object) -> tuple[int, str]:
    """How many errors `value` has under the schema `text` (as JSON), and the first one in words ("" where none).

    Raises TooCostly.
    """
    token = _steps_left.set([MAX_STEPS])
    try:
        problems = list(islice(validator_of(text).iter_errors(value), MAX_ERRORS))
    except RecursionError:
        raise TooCostly from None
    finally:
        _steps_left.reset(token)
    if not problems:
        return 0, ""
    place, message = _path(problems[0].absolute_path), problems[0].message[:200]
    return len(problems), f"{place}: {message}" if place else message


def _counted(function: Keyword) -> Keyword:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        left = _steps_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise TooCostly
        yield from function(validator, value, instance, schema) or ()

    return keyword


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not pattern_of(pattern).occurs(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique_items(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """In linear time; the library compares every pair of items that it cannot sort."""
    if wanted and isinstance(instance, list) and len(set(map(_frozen, instance))) < len(instance):
        yield jsonschema.ValidationError("an item occurs twice")


def _frozen(value: object) -> object:
    """A hashable value that is equal exactly where two JSON values are."""
    if isinstance(value, dict):
        return "object", frozenset((name, _frozen(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_frozen, value))
    return ("boolean", value) if isinstance(value, bool) else value


_OWN: Final[dict[str, Keyword]] = {"pattern": _pattern, "uniqueItems": _unique_items}
_Validator: Final = validators.create(
    meta_schema=jsonschema.Draft202012Validator.META_SCHEMA,
    validators={
        name: _counted(_OWN.get(name, function))
        for name, function in jsonschema.Draft202012Validator.VALIDATORS.items()
        if name in KEYWORDS
    },
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER,
)


@lru_cache(maxsize=64)
def validator_of(text: str) -> Any:
    """The validator of a checked schema, given as JSON, remembered."""
    return _Validator(json.loads(text), format_checker=jsonschema.FormatChecker(FORMATS))


def check_depth(value: object) -> bool:
    """Whether a parsed JSON value has at most `MAX_DEPTH` levels."""
    level: Sequence[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return True
    return False
