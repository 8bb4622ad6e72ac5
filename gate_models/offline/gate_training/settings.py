"""What a training of gates is asked for. Light (no torch): the command line offers its fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What gates are trained with."""

    seed: int = 0
    """Seed of the forests."""
    trees: int = 400
    """Trees of the fate and ordinal heads (`forest.heads.TREES`)."""
    jobs: int = 1
    """Threads that grow trees."""
