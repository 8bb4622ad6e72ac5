"""The settings of a gate audit. The command line offers each field as an option; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WIDTHS: Final = (1, 4, 8, 16)
"""Tail widths that an audit reads off."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is audited, and how much of it."""

    families: tuple[str, ...] = ()
    """Families whose gates are audited; empty: every gate that was trained on this model."""
    prompts: int | None = None
    """Audit prompts of a family."""
    samples: int = 2
    """Fresh trajectories of a prompt."""
    seed: int = 1000
    """Of the fresh trajectories; a census draws its own by another purpose."""
    widths: tuple[int, ...] = WIDTHS
    """Tail widths."""
    model: str = "mini"
    threads: int = 1
    trees: int = 400
    """Trees of the heads that are cross-validated for the accuracy tables."""
    accuracy: bool = True
    """Cross-validate and ablate (needs a census; takes a minute a family)."""
    fluency_model: str | None = None
    """Local folder of a causal language model that judges fluency."""
