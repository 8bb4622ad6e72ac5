"""The settings of a training of gates. The command line offers each field as an option; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GateTrainSettings:
    """What gates are trained with."""

    seed: int = 0
    """Seed of the forests."""
    trees: int = 400
    """Trees of the fate and ordinal heads (`forest.heads.TREES`)."""
    jobs: int = 1
    """Threads that grow trees."""


@dataclass(frozen=True, slots=True)
class ConstantPlan:
    """What the constant cuts are measured on."""

    tasks: tuple[str, ...] = ("commongen-k3", "commongen-k4", "commongen-k5")
    """Families (tasks of the benchmarks)."""
    widths: tuple[int, ...] = (1, 8)
    """Tail widths."""
    prompts: int = 60
    """Prompts of a family."""
    skip: int = 0
    """The first prompts of a family that are left to evaluation."""
    guidance_scale: float = 2.0
    """Guidance scale of the runs."""
    margin: float = 0.03
    """Success that a cut may lose."""
    rollouts: int = 1
    """Continuations of a cut."""
    seed: int = 1
    """Seed of every text."""
