"""Canvases that fit the texts which the shipped model was taught to write, by constraint family."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

FAMILY_CANVAS: Final = MappingProxyType(
    {
        "commongen-k5": 24,
        "commongen-k10": 32,
        "ccg-length": 24,
        "ccg-sentiment": 24,
        "ifeval-kw-freq": 32,
        "ifeval-capital-freq": 24,
        "ifeval-no-comma": 48,
        "collie-c07": 24,
    }
)
"""Families that are not here fit the model's default canvas."""
