"""Colours of the canvas, the same in notebooks and plots. Orange and blue stay apart for every kind of sight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INK: Final = "#1a1a1a"
MASK: Final = "#e9e9ea"
FRESH: Final[Mapping[str, str]] = {"guided": "#f28e2b", "base": "#5b9bd5", "filled": "#b7b7b9", "restored": "#86bf7e"}
"""Committed in the step that is shown, by phase."""
KEPT: Final[Mapping[str, str]] = {"guided": "#fbdcbb", "base": "#d2e4f4", "filled": "#d6d6d8", "restored": "#d3e8cf"}
"""Committed before."""


def colour(phase: str | None, *, fresh: bool) -> str:
    """Of a position by the phase that committed it; None where it is masked."""
    if phase is None:
        return MASK
    return (FRESH if fresh else KEPT).get(phase, MASK)
