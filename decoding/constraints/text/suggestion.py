"""Which known word a misspelt one may mean, for the end of an error message."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LONGEST: Final = 100
"""Characters of a word that is looked up: the search takes time that grows with their square."""


def suggestion(given: object, allowed: Iterable[str]) -> str:
    """The words "; did you mean 'x'?" with the word of `allowed` that is most like `given`; empty without one."""
    close = get_close_matches(given.lower(), allowed, 1) if isinstance(given, str) and len(given) <= LONGEST else []
    return f"; did you mean '{close[0]}'?" if close else ""
