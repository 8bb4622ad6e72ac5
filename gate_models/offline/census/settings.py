"""The settings of a census. The command line offers each field as an option; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gate_models.committor.choices import FREEZE_GRID, Coupling


@dataclass(frozen=True, slots=True)
class CensusSettings:
    """What a census is made from. `IDENTITY` must stay as it is in one folder; the rest may grow."""

    subtasks: tuple[str, ...]
    """Families (subtasks of the benchmarks), or `all`."""
    prompts: int | None = None
    """Prompts of a family."""
    rollouts: int = 24
    """N: continuations of a cell."""
    seed: int = 0
    """Seed of everything."""
    model: str = "mini"
    weight: float = 2.0
    """Guidance scale of the run that is frozen."""
    repeats: int = 2
    """Recorded runs at that scale; the first is frozen, the others are for features that see a whole run."""
    extra_weights: tuple[float, ...] = (0.0, 0.5, 1.0, 4.0)
    """Guidance scales of further recorded runs, one each."""
    grid: tuple[float, ...] = FREEZE_GRID
    """Freeze grid: horizons (a*) and fates are read on it."""
    extra_grid: tuple[float, ...] = ()
    """Further fractions with cells, for gates that look later, such as 0.7,0.8,0.9."""
    tail_widths: tuple[int, ...] = (1,)
    """Tail widths of the base arms; 1 is always there."""
    sweep: tuple[float, ...] = ()
    """Guidance scales of a sweep by fresh runs, with 0 among them, such as 0,0.5,1,1.5,2,2.5,3,3.5,4."""
    switch: bool = False
    """Also fresh runs that hand off at each grid point (the ensemble form of Definition 1)."""
    gen_length: int | None = None
    """Canvas length in tokens."""
    steps: int | None = None
    """Denoising steps."""
    temperature: float = 1.0
    """Sampling temperature."""
    block_length: int | None = None
    """Semi-autoregressive blocks."""
    order: str = "confidence"
    """Commit order while guided."""
    guided_width: int = 1
    """Positions that a guided step commits."""
    coupling: Coupling = "independent"
    """Random numbers of the two arms."""
    device: str = "cpu"
    dtype: str = "float32"
    invariant: bool = True
    threads: int = 1
    max_rows: int = 64

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.repeats < 1:
            raise ValueError("rollouts and repeats must be at least 1")
        if self.weight <= 0:
            raise ValueError("the frozen run needs a weight above 0; weight 0 belongs into the extra weights")
        if self.weight in self.extra_weights:
            raise ValueError(f"weight {self.weight:g} is the frozen run's already; leave it out of the extra weights")
        if self.sweep and (0.0 not in self.sweep or len(set(self.sweep)) < 2):
            raise ValueError("a weight sweep needs weight 0 and one above it, such as 0,0.5,1,2,4")
        if any(width < 1 for width in self.tail_widths):
            raise ValueError("tail widths must be at least 1")


IDENTITY: Final = (
    "seed",
    "weight",
    "grid",
    "gen_length",
    "steps",
    "temperature",
    "block_length",
    "order",
    "guided_width",
    "coupling",
    "dtype",
    "invariant",
)
"""Settings that every shard of a folder shares."""
