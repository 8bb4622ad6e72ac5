"""The named choices of a committor estimate: its grid of steps, and how its arms share random numbers.

Nothing here loads torch, so that command lines and schemas can read it."""

from __future__ import annotations

from typing import Final, Literal

FREEZE_GRID: Final = (0.05, 0.10, 0.15, 0.22, 0.30, 0.45, 0.60)
"""Fractions of the steps at which a guided run is frozen (the paper's grid)."""

Coupling = Literal["independent", "common", "antithetic"]
"""How the random numbers of two arms hang together: not at all, the same numbers, or mirrored pairs of the same."""
