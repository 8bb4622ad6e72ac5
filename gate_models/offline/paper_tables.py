"""Figures of the paper that reports stand beside, for orientation: LLaDA-8B, 64 tokens, 64 steps, not measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SUCCESS_BY_WEIGHT: Final[Mapping[str, Mapping[float, float]]] = {
    name: dict(zip((0.0, 1.0, 2.0, 4.0), values, strict=True))
    for name, values in {
        "commongen-k3": (0.69, 0.77, 0.84, 0.77),
        "commongen-k4": (0.53, 0.70, 0.74, 0.72),
        "commongen-k5": (0.32, 0.66, 0.62, 0.60),
        "commongen-k10": (0.38, 0.69, 0.73, 0.63),
        "ccg-length": (0.33, 0.79, 0.81, 0.57),
        "ccg-sentiment": (0.59, 0.65, 0.64, 0.58),
        "ccg-multi": (0.60, 0.84, 0.87, 0.79),
        "ifeval-kw-freq": (0.84, 0.98, 0.93, 0.84),
        "ifeval-letter-freq": (0.61, 0.69, 0.70, 0.67),
        "ifeval-capital-freq": (0.51, 0.71, 0.73, 0.69),
        "ifeval-no-comma": (0.49, 0.79, 0.80, 0.88),
        "collie-c07": (0.89, 0.90, 0.83, 0.72),
        "collie-c06a": (0.08, 0.14, 0.04, 0.00),
    }.items()
}
"""Table "subtask-level success rate at every guidance weight" (n = 200, N = 24)."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "CommonGen": ("commongen-k3", "commongen-k4", "commongen-k5", "commongen-k10"),
    "CCG": ("ccg-length", "ccg-sentiment", "ccg-multi"),
    "IFEval": ("ifeval-kw-freq", "ifeval-letter-freq", "ifeval-capital-freq", "ifeval-no-comma"),
    "COLLIE": ("collie-c07", "collie-c06a"),
    "WordNet": ("cognac-avoidance",),
}
"""The benchmark families and their subtasks."""
