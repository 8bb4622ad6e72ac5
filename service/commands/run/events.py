"""What happens to a text while it is decoded, in one form for a model that is loaded here and for a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class FailedError(RuntimeError):
    """The request failed; the message is for the user."""


class RefusedError(FailedError):
    """The request cannot be as it was called."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A step of a sample: the pieces of text that it has put at positions of the canvas."""

    sample: int
    phase: str
    """'guided' (two rows) or 'base' (one)."""
    positions: Sequence[int]
    pieces: Sequence[str]
    filled: Sequence[int] = ()
    """Positions behind an end of text, which hold nothing."""


@dataclass(frozen=True, slots=True)
class Reopened:
    """A sample goes on from another canvas: one display piece a position, None where it is masked again."""

    sample: int
    canvas: Sequence[str | None]


Watch = Callable[[Committed | Reopened], None]
