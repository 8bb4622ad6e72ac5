"""`astargate census report`: what guidance does for the prompts of a census and when it may end, as tables.

Populations are named: *full census* is every prompt with a complete sweep, *preterminal* those with a horizon before T
(preformed, handoff, harmful, redundant-drop), *handoff class* the prompts with fate handoff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gate_models.committor.crossfit import SPLITS, FreezeCounts, PromptValue, cross_fit_all
from gate_models.committor.fates import CENSORED, GUIDANCE_FATES, HANDOFF_FATES
from gate_models.offline.census.labels import PromptLabels, counts_of, ensemble_of, labels_of
from gate_models.offline.census.noninferiority import Noninferiority, noninferiority
from gate_models.offline.census.records import Census, PromptRecord
from gate_models.statistics.bootstrap import REPLICATES

TOLERANCES: Final = (0.03, 0.05, 0.1)
"""Tolerances that the ensemble form of the horizon is reported at."""


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Median and quartiles of a* / T over a population."""

    count: int
    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Quartiles | None:
        """None where there are no values."""
        if not values:
            return None
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        return Quartiles(len(values), float(low), float(median), float(high))

    @property
    def text(self) -> str:
        """As tables show them."""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The pooled freeze curve at one grid fraction."""

    fraction: float
    committed_fraction: float
    rates: dict[str, float]
    """Success by arm, mean over prompts."""


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """What the census says of one subtask."""

    task: str
    prompts: int
    """With a complete sweep."""
    incomplete: int
    splits: dict[str, int]
    handoff_fates: dict[str, int]
    guidance_fates: dict[str, int] | None
    preterminal: Quartiles | None
    handoff_class: Quartiles | None
    censored_share: float
    table: Noninferiority | None
    """None where the cells are too small to split (N < 2)."""
    oracle_plug_in: float | None
    oracle: float | None
    """Base success at each prompt's best-looking grid point, as it looks and cross-fitted."""
    curve: tuple[CurvePoint, ...]
    rollouts: dict[int, int]
    """Prompts by N, which differ while a census grows: rollouts of the smallest cell that a* is read from."""
    ensemble: dict[float, Quartiles] | None
    """a* / T of Definition 1 by tolerance (1 where censored); None where the census holds no switch runs."""
    rows_per_prompt: float
    collided: tuple[tuple[float, ...], ...]
    """Grid fractions that fall on one step."""


def report(census: Census, *, splits: int = SPLITS, replicates: int = REPLICATES) -> list[SubtaskReport]:
    """A report for each subtask that has a prompt with a complete sweep."""
    subtasks = (_subtask(census, task, splits, replicates) for task in census.tasks)
    return [subtask for subtask in subtasks if subtask is not None]


def _subtask(census: Census, task: str, splits: int, replicates: int) -> SubtaskReport | None:
    prompts = census.of(task)
    swept = [(p, c, label) for p in prompts if (c := counts_of(census, p)) and (label := labels_of(census, p))]
    if not swept:
        return None
    labels = [label for _, _, label in swept]
    counts = [count for _, count, _ in swept]
    fates = fate_counts(labels)
    values = _values(counts, int(census.settings["seed"]), splits)
    return SubtaskReport(
        task=task,
        prompts=len(swept),
        incomplete=len(prompts) - len(swept),
        splits=dict(Counter(prompt.any_run.split for prompt, _, _ in swept)),
        handoff_fates=fates,
        guidance_fates=_guidance(labels),
        preterminal=Quartiles.of([label.a_star for label in labels if label.a_star is not None]),
        handoff_class=handoff_class(labels),
        censored_share=sum(fates[fate] for fate in CENSORED) / len(swept),
        table=noninferiority(values, replicates=replicates) if values else None,
        oracle_plug_in=float(np.mean([value.oracle_plug_in for value in values])) if values else None,
        oracle=float(np.mean([value.oracle for value in values])) if values else None,
        curve=_curve(census, [prompt for prompt, _, _ in swept]),
        rollouts=dict(sorted(Counter(_smallest(count) for count in counts).items())),
        ensemble=_ensemble(prompts),
        rows_per_prompt=float(np.mean([_rows(prompt) for prompt, _, _ in swept])),
        collided=_collided(swept[0][0], census),
    )


def fate_counts(labels: Sequence[PromptLabels]) -> dict[str, int]:
    """Prompts by handoff fate."""
    counts = Counter(label.handoff_fate for label in labels)
    return {fate: counts[fate] for fate in HANDOFF_FATES}


def handoff_class(labels: Sequence[PromptLabels]) -> Quartiles | None:
    """a* / T over the prompts with fate handoff."""
    return Quartiles.of([x.a_star for x in labels if x.a_star is not None and x.handoff_fate == "handoff"])


def _values(counts: Sequence[FreezeCounts], seed: int, splits: int) -> list[PromptValue]:
    smallest = min(_smallest(count) for count in counts)
    minimum = 4 if any(count.coupling == "antithetic" for count in counts) else 2
    return cross_fit_all(counts, seed, splits) if smallest >= minimum else []


def _smallest(count: FreezeCounts) -> int:
    return int(min(count.base_count.min(), count.guided_count.min()))


def _guidance(labels: Iterable[PromptLabels]) -> dict[str, int] | None:
    fates = Counter(label.guidance_fate for label in labels if label.guidance_fate is not None)
    return {fate: fates[fate] for fate in GUIDANCE_FATES} if fates else None


def _curve(census: Census, prompts: Sequence[PromptRecord]) -> tuple[CurvePoint, ...]:
    rates_by_arm: dict[float, dict[str, list[float]]] = {}
    committed: dict[float, list[float]] = {}
    for prompt in prompts:
        for cell in prompt.cells.values():
            if cell.kind == "freeze" and cell.run == census.main_run:
                for fraction in cell.fractions:
                    rates_by_arm.setdefault(fraction, {}).setdefault(cell.arm, []).append(cell.rate)
                    committed.setdefault(fraction, []).append(cell.committed_fraction)
    return tuple(
        CurvePoint(
            fraction,
            float(np.mean(committed[fraction])),
            {arm: float(np.mean(rates)) for arm, rates in sorted(rates_by_arm[fraction].items())},
        )
        for fraction in sorted(rates_by_arm)
    )


def _ensemble(prompts: Sequence[PromptRecord]) -> dict[float, Quartiles] | None:
    by_tolerance: dict[float, Quartiles] = {}
    for tolerance in TOLERANCES:
        horizons = [h.step / p.any_run.steps for p in prompts if (h := ensemble_of(p, tolerance)) is not None]
        if quartiles := Quartiles.of(horizons):
            by_tolerance[tolerance] = quartiles
    return by_tolerance or None


def _rows(prompt: PromptRecord) -> int:
    return sum(run.rows for run in prompt.runs.values()) + sum(cell.rows for cell in prompt.cells.values())


def _collided(prompt: PromptRecord, census: Census) -> tuple[tuple[float, ...], ...]:
    cells = prompt.freeze(census.main_run, "base")
    return tuple(cell.fractions for cell in cells if len(cell.fractions) > 1)
