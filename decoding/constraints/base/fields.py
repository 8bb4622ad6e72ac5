"""Validation of constraint fields: each helper returns the checked value or raises a `ConstraintError` naming it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from decoding.constraints.base.constraint import ConstraintError
from decoding.constraints.text.suggestion import suggestion
from decoding.constraints.text.words import normalise

MAX_KEYWORDS: Final = 32
MAX_FORMS: Final = 64
MAX_PHRASE: Final = 100
"""Characters of one keyword, form, word or topic."""
MAX_LEXICON: Final = 10_000
"""Entries of a forbidden or topical word list (WordNet's largest topic has about 7,000)."""
MAX_SOURCE: Final = 20_000
"""Characters of a source text."""
MAX_COUNT: Final = 10_000
MAX_MEMBERS: Final = 16
"""Members of a composition."""
MAX_CHARACTERS: Final = 200_000
"""Of all strings of a constraint together: what they cost grows with them (WordNet's largest topic has 100,000)."""


def check_size(spec: object) -> None:
    """Raise `ConstraintError` where the strings of `spec`, which may be anything, are too long taken together."""
    total, open_parts = 0, [spec]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, Mapping):
            open_parts += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple)):
            open_parts += part
    if total > MAX_CHARACTERS:
        raise ConstraintError("", f"holds {total} characters of text; at most {MAX_CHARACTERS} are allowed")


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "an array" if isinstance(value, Sequence) else f"a {type(value).__name__}")


def _shown(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value) if abs(value) < 10**12 else "too large"


def text(value: object, param: str, *, limit: int = MAX_PHRASE) -> str:
    """A string of 1 to `limit` characters, one of them visible; control characters and surrogates are refused."""
    if not isinstance(value, str):
        raise ConstraintError(param, f"must be a string, not {_kind(value)}")
    if len(value) > limit:
        raise ConstraintError(param, f"has {len(value)} characters; at most {limit} are allowed")
    categories = {unicodedata.category(character) for character in value if not character.isspace()}
    if "Cc" in categories or "Cs" in categories:
        raise ConstraintError(param, "holds a control character or a lone surrogate; remove it")
    if not categories - {"Cf", "Cn", "Mn", "Me"}:
        raise ConstraintError(param, "is empty; give at least one visible character")
    return value


def phrase(value: object, param: str) -> str:
    """A keyword-like string: as `text`, with outer white space dropped and inner runs made one space."""
    return unicodedata.normalize("NFC", " ".join(text(value, param).split()))


def array(value: object, param: str, *, limit: int, minimum: int = 1) -> Sequence[Any]:
    """A list or tuple of `minimum` to `limit` items."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise ConstraintError(param, f"must be an array, not {_kind(value)}")
    if len(value) < minimum:
        raise ConstraintError(param, f"has {len(value)} items; give at least {minimum}")
    if len(value) > limit:
        raise ConstraintError(param, f"has {len(value)} items; at most {limit} are allowed")
    return value


def phrases(value: object, param: str, *, limit: int = MAX_KEYWORDS, exact: bool = False) -> tuple[str, ...]:
    """Between 1 and `limit` phrases, no two alike but for case, white space or apostrophe style.

    With `exact` phrases that differ in case or apostrophes are two.
    """
    seen: dict[str, int] = {}
    checked = []
    for index, item in enumerate(array(value, param, limit=limit)):
        one = phrase(item, f"{param}[{index}]")
        first = seen.setdefault(one if exact else normalise(one), index)
        if first != index:
            raise ConstraintError(f"{param}[{index}]", f"{one!r} repeats {param}[{first}]; list it once")
        checked.append(one)
    return tuple(checked)


def flag(value: object, param: str) -> bool:
    """True or false, and nothing that merely reads as such."""
    if not isinstance(value, bool):
        raise ConstraintError(param, f"must be true or false, not {_kind(value)}")
    return value


def integer(value: object, param: str, *, low: int, high: int = MAX_COUNT) -> int:
    """A whole number in [low, high]; booleans and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConstraintError(param, f"must be an integer, not {_kind(value)}")
    if not low <= value <= high:
        raise ConstraintError(param, f"is {_shown(value)}; it must be from {low} to {high}")
    return value


def number(value: object, param: str, *, low: float, high: float, low_open: bool = False) -> float:
    """A finite number in [low, high], or (low, high] with `low_open`; booleans, NaN and infinities are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConstraintError(param, f"must be a number, not {_kind(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConstraintError(param, f"is {value}; it must be finite")
    span = "above" if low_open else "from"
    if not low <= value <= high or (low_open and value == low):
        raise ConstraintError(param, f"is {_shown(value)}; it must be {span} {low:g} up to {high:g}")
    return float(value)


def choice(value: object, param: str, options: tuple[str, ...]) -> str:
    """One of `options`."""
    if not isinstance(value, str):
        raise ConstraintError(param, f"must be a string, not {_kind(value)}")
    if value not in options:
        raise ConstraintError(
            param, f"is {value[:40]!r}; it must be one of {', '.join(options)}{suggestion(value, options)}"
        )
    return value


def assign(instance: object, **values: Any) -> None:
    """Store checked values on a frozen dataclass, from its `__post_init__` only."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def object_schema(kind: str, fields: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """JSON Schema of a constraint object of type `kind`."""
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **fields},
        "required": ["type", *required],
        "additionalProperties": False,
    }


def count_schema(low: int, description: str, high: int = MAX_COUNT) -> dict[str, Any]:
    """JSON Schema of a bounded integer."""
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def phrase_schema(description: str) -> dict[str, Any]:
    """JSON Schema of one phrase."""
    return {"type": "string", "minLength": 1, "maxLength": MAX_PHRASE, "description": description}


def phrases_schema(description: str, *, limit: int = MAX_KEYWORDS) -> dict[str, Any]:
    """JSON Schema of a list of phrases."""
    item = {"type": "string", "minLength": 1, "maxLength": MAX_PHRASE}
    return {"type": "array", "items": item, "minItems": 1, "maxItems": limit, "description": description}
