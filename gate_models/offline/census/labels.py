"""What a census says of each prompt: what guidance does for it, and the step a* at which guidance may end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gate_models.committor.crossfit import FreezeCounts
from gate_models.committor.fates import guidance_fate
from gate_models.committor.horizon import EnsembleHorizon, ensemble_horizon
from gate_models.offline.census.records import Census, PromptRecord


@dataclass(frozen=True, slots=True)
class PromptLabels:
    """What the census says of one prompt (plug-in)."""

    handoff_fate: str
    a_star: float | None
    """Step of the horizon as a fraction of T; None where censored."""
    horizon_step: int | None
    horizon_fraction: float | None
    """The grid fraction (the smallest that falls on the step)."""
    committed_fraction: float | None
    """Share of the canvas that is committed there."""
    guidance_fate: str | None
    """None where the census holds no weight sweep."""


def counts_of(census: Census, prompt: PromptRecord, base: str = "base") -> FreezeCounts | None:
    """The freeze sweep of a prompt along the census's grid; None where an arm of a grid point is missing."""
    low = prompt.freeze(census.main_run, base, census.grid)
    high = prompt.freeze(census.main_run, "guided", census.grid)
    if not low or [cell.step for cell in low] != [cell.step for cell in high]:
        return None
    coupling = low[0].coupling
    count = min(cell.count for cell in (*low, *high))
    outcomes = np.stack([[cell.outcomes[:count] for cell in cells] for cells in (low, high)])
    return FreezeCounts(
        key="/".join(prompt.key),
        steps=tuple(cell.step for cell in low),
        total_steps=prompt.any_run.steps,
        base=np.array([cell.successes for cell in low]),
        guided=np.array([cell.successes for cell in high]),
        base_count=np.array([cell.count for cell in low]),
        guided_count=np.array([cell.count for cell in high]),
        outcomes=None if coupling == "independent" else outcomes,
        coupling=coupling,
    )


def labels_of(census: Census, prompt: PromptRecord) -> PromptLabels | None:
    """The labels of a prompt; None where its freeze sweep is not complete."""
    counts = counts_of(census, prompt)
    if counts is None:
        return None
    sweep = {weight: (cell.successes, cell.count) for weight, cell in prompt.sweep().items()}
    index = counts.point
    reached = index < len(counts.steps)
    cell = prompt.freeze(census.main_run, "base", census.grid)[index] if reached else None
    return PromptLabels(
        handoff_fate=counts.fate,
        a_star=None if cell is None else cell.step / counts.total_steps,
        horizon_step=None if cell is None else cell.step,
        horizon_fraction=None if cell is None else min(cell.fractions),
        committed_fraction=None if cell is None else cell.committed_fraction,
        guidance_fate=guidance_fate(sweep) if 0.0 in sweep and len(sweep) > 1 else None,
    )


def ensemble_of(prompt: PromptRecord, tolerance: float) -> EnsembleHorizon | None:
    """a*_eps of Definition 1 from a prompt's switch runs; None where the census holds none."""
    cells = sorted((cell for cell in prompt.cells.values() if cell.kind == "switch"), key=lambda cell: cell.step)
    steps = prompt.any_run.steps
    if len(cells) < 2 or cells[-1].step != steps:
        return None
    *before, last = cells
    curve = np.array([cell.rate for cell in before])
    return ensemble_horizon([cell.step for cell in before], curve, last.rate, steps, tolerance)
