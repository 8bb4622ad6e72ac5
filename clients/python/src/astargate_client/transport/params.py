"""Checks keyword arguments against the typed dictionary that describes them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast


def known(function: str, given: Mapping[str, Any], described_by: type) -> dict[str, Any]:
    """What was given, without the None. Raises `TypeError` for a name that `described_by` does not have."""
    names = described_by.__annotations__
    for name in given.keys() - names.keys():
        close = get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(sorted(names))}"
        raise TypeError(f"{function}() has no argument {name!r}; {hint}")
    return {name: value for name, value in cast("dict[str, Any]", given).items() if value is not None}
