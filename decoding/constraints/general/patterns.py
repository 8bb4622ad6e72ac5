"""Regular expressions of callers: their time grows no faster than pattern times text.

`re` backtracks: the pattern (a+)+$ takes 2^n steps on n letters, and a server's judge would stand still. The engine
here is Rust's automaton, through `jsonschema_rs`: linear time and bounded memory, so there is no timeout, and a verdict
does not depend on how busy the machine is. The dialect is that of JSON Schema's `pattern` (ECMA 262) without what no
automaton can do: back references and look-around.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import jsonschema_rs

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import ConstraintError

MAX_PATTERN: Final = 500
"""Characters of a pattern."""
_OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
"""Bytes of a compiled pattern and of its cache."""


class Pattern:
    """A compiled pattern. Raises ConstraintError, with an empty `param`, for what is none."""

    __slots__ = ("_search", "_whole")

    def __init__(self, pattern: str) -> None:
        self._search = _compiled(pattern)
        self._whole = _compiled(f"^(?:{pattern})$")

    def occurs(self, text: str) -> bool:
        """Whether some part of `text` matches."""
        return self._search.is_valid(_encodable(text))

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        return self._whole.is_valid(_encodable(text))


def _encodable(text: str) -> str:
    """`text` with lone surrogates, which the engine cannot read, as question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _compiled(pattern: str) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=_OPTIONS)
    except (jsonschema_rs.ValidationError, ValueError):
        raise ConstraintError(
            "",
            "is no regular expression that this server takes: check its brackets, leave out back references and "
            "look-around, and keep repetitions small",
        ) from None


@lru_cache(maxsize=256)
def pattern_of(text: str) -> Pattern:
    """The compiled form of a pattern, remembered."""
    return Pattern(text)


def checked(value: object, param: str) -> str:
    """A pattern that compiles. Raises ConstraintError, naming `param`, for any other value."""
    text = fields.text(value, param, limit=MAX_PATTERN)
    try:
        pattern_of(text)
    except ConstraintError as error:
        raise error.under(param) from None
    return text
