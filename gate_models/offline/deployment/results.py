"""What each policy would do for a user: its success against its cost, and best-of-n at the same cost.

Read from results of `astargate evaluate --out`. A `:bestN` run holds best-of-n for every smaller n and every budget in
between: its samples remember after how many rows a text satisfied. Best-of-n is compared at matched rows: it is stopped
at the budget at which its mean rows equal the other policy's, linear in between. Beyond the tries that were run its
success is known within bounds only. Intervals of differences resample prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.features.text_metrics import has_adjacent_repeat
from gate_models.offline.scorers.fluency import FluencyModel, fluency
from gate_models.policies.names import parse_policy
from gate_models.statistics.bootstrap import REPLICATES, bootstrap, by_prompt, paired_bootstrap
from gate_models.statistics.intervals import Estimate, proportion

SampleEntry = Mapping[str, Any]
SamplesByPolicy = Mapping[str, Sequence[SampleEntry]]
"""Samples of each policy on one task."""
Values = NDArray[np.float64]
FULL: Final = "full_cfg"


@dataclass(frozen=True, slots=True, eq=False)
class BestOfCurve:
    """Best-of-n of one policy: rows and successes [P, N] of each prompt's first 1, 2, ... tries; prompts in order."""

    name: str
    prompts: tuple[str, ...]
    rows: Values
    success: Values

    def points(self) -> tuple[Values, Values]:
        """Mean rows and success [N]."""
        return self.rows.mean(0), self.success.mean(0)

    def bounds(self, rows: float) -> tuple[float, float] | None:
        """Smallest and largest success at mean `rows`; equal but beyond what was run, None below one text.

        A further try costs a text and solves one prompt at best, so that more rows than were run add at most their
        number of the cheapest texts.
        """
        known_rows, success = self.points()
        if rows < known_rows[0]:
            return None
        lower = float(np.interp(rows, known_rows, success))
        more = max(0.0, rows - float(known_rows[-1])) / float(self.rows[:, 0].min())
        return lower, max(lower, min(1.0, lower + more))

    def at(self, rows: float) -> float | None:
        """Success at mean `rows`; None where it is not known, or below one text."""
        bounds = self.bounds(rows)
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None


def best_of_curve(name: str, samples: Sequence[SampleEntry]) -> BestOfCurve:
    """The curve of a `:bestN` run, each prompt stopped at its first success."""
    histories: dict[str, list[Any]] = {}
    for sample in samples:
        histories.setdefault(sample["prompt_id"], []).append(sample["history"])
    longest = max(len(history) for listed in histories.values() for history in listed)
    prompts = tuple(sorted(histories))
    ends = np.array(
        [
            np.mean([[h[min(tries, len(h) - 1)][:2] for tries in range(longest)] for h in histories[prompt]], axis=0)
            for prompt in prompts
        ],
        dtype=np.float64,
    )
    return BestOfCurve(name, prompts, ends[..., 0], ends[..., 1])


def curves_of(cells: SamplesByPolicy) -> list[BestOfCurve]:
    """The curves of a task's `:bestN` runs."""
    return [best_of_curve(name, samples) for name, samples in cells.items() if parse_policy(name).attempts > 1]


def beyond(samples: Sequence[SampleEntry], curve: BestOfCurve, *, seed: int = 0) -> Estimate | None:
    """Success of a policy less best-of-n's at the policy's mean rows; prompts are resampled, rows with them.

    None where best-of-n is not known at so many rows, or costs more for one text.
    """
    success, rows = (
        np.array([by_prompt(samples, value)[prompt] for prompt in curve.prompts]) for value in ("satisfied", "rows")
    )
    at = curve.at(float(rows.mean()))
    if at is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(rows.size, np.full(rows.size, 1 / rows.size), size=REPLICATES) / rows.size
    spent, curve_rows, curve_success = drawn @ rows, drawn @ curve.rows, drawn @ curve.success
    differences = drawn @ success - _between(spent, curve_rows, curve_success)
    low, high = np.quantile(differences, [0.025, 0.975])
    return Estimate(float(success.mean()) - at, float(low), float(high), "prompt_bootstrap")


def _between(at: Values, points: Values, values: Values) -> Values:
    """Linear interpolation in each line: values [R, N] over rising points [R, N] at `at` [R], clamped at the ends."""
    if points.shape[1] == 1:
        return values[:, 0]
    right = np.clip((points <= at[:, None]).sum(1), 1, points.shape[1] - 1)
    line = np.arange(at.size)
    start, end = points[line, right - 1], points[line, right]
    share = np.clip((at - start) / np.maximum(end - start, 1e-12), 0.0, 1.0)
    between: Values = values[line, right - 1] * (1 - share) + values[line, right] * share
    return between


@dataclass(frozen=True, slots=True)
class BestOfN:
    """Best-of-n at the rows of another policy."""

    bounds: tuple[float, float] | None
    """Smallest and largest success (see `BestOfCurve.bounds`); None where one text costs more."""
    difference: Estimate | None
    """The other policy's success minus it, prompts resampled; None where it is not known, and for itself."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy on one set of prompts."""

    policy: str
    prompts: int
    success: Estimate
    rows: float
    gain: Estimate | None
    """Success minus full CFG's, paired by prompt; None without full CFG."""
    of_full: float | None
    """Rows as a share of full CFG's."""
    more_rows: Estimate | None
    """Rows minus full CFG's, paired by prompt."""
    perplexity: float | None
    repeats: float
    best_of: Mapping[str, BestOfN]
    """By `:bestN` run."""


def rows_of(cells: SamplesByPolicy, judge: FluencyModel) -> list[PolicyRow]:
    """Every policy of a task."""
    curves = curves_of(cells)
    full = cells.get(FULL)
    reference = None if full is None else (by_prompt(full), by_prompt(full, "rows"))
    rows = []
    for name, samples in cells.items():
        texts = [sample["text"] for sample in samples]
        success, spent = by_prompt(samples), float(np.mean([sample["rows"] for sample in samples]))
        paired = None if name == FULL else reference
        rows.append(
            PolicyRow(
                policy=name,
                prompts=len(success),
                success=_success(samples),
                rows=spent,
                gain=None if paired is None else paired_bootstrap(success, paired[0]),
                of_full=None if full is None else spent / float(np.mean([sample["rows"] for sample in full])),
                more_rows=None if paired is None else paired_bootstrap(by_prompt(samples, "rows"), paired[1]),
                perplexity=fluency(judge, texts)["perplexity"],
                repeats=float(np.mean([has_adjacent_repeat(text) for text in texts])),
                best_of={curve.name: _best_of(name, samples, spent, curve) for curve in curves},
            )
        )
    return rows


def _best_of(name: str, samples: Sequence[SampleEntry], rows: float, curve: BestOfCurve) -> BestOfN:
    same = name in {curve.name, first_pass(curve.name)}
    return BestOfN(curve.bounds(rows), None if same else beyond(samples, curve))


def first_pass(name: str) -> str:
    """The policy that decodes the first text of another: `full_cfg` of `full_cfg:repair3x4`, of `full_cfg:best3`."""
    return re.sub(r":(repair|best|rows)[^:]*", "", name)


def _success(samples: Sequence[SampleEntry]) -> Estimate:
    """Wilson where each prompt has one text (a bootstrap of successes alone has no width), else over prompts."""
    success = by_prompt(samples)
    if len(success) == len(samples):
        return proportion(sum(sample["satisfied"] for sample in samples), len(samples))
    return bootstrap(np.array(list(success.values())))


def truncated(samples: Sequence[SampleEntry], passes: int) -> Sequence[SampleEntry]:
    """The samples as they are where only so many texts are judged: the first pass alone (1), one round (2), ...

    Equal to a run that stops there: noise, reopened positions and texts do not depend on what comes later.
    """
    shorter: list[SampleEntry] = []
    for sample in samples:
        ends = sample["history"][:passes]
        best = next((end for end in ends if end[1]), ends[0])
        shorter.append({**sample, "rows": ends[-1][0], "satisfied": best[1], "text": best[2], "history": []})
    return shorter


def plain(cells: SamplesByPolicy) -> SamplesByPolicy:
    """The cells, and those that are the first passes of another."""
    firsts = {
        first_pass(name): truncated(samples, 1)
        for name, samples in cells.items()
        if samples and samples[0].get("history") and parse_policy(name).policy.preset != "auto"
    }
    return {**{name: samples for name, samples in firsts.items() if name not in cells}, **cells}


def merged(results: Sequence[Mapping[str, Any]]) -> Mapping[str, SamplesByPolicy]:
    """The samples of results by task and policy, first passes among them.

    Raises `ValueError` where the results are of different models or seeds.
    """
    if len({(result["model_hash"], result["seed"]) for result in results}) > 1:
        raise ValueError("the results are of different models or seeds")
    tasks: dict[str, dict[str, Sequence[SampleEntry]]] = {}
    for result in results:
        for task, cells in result["tasks"].items():
            tasks.setdefault(task, {}).update(cells["samples"])
    return {task: plain(cells) for task, cells in tasks.items()}


def pooled(tasks: Mapping[str, SamplesByPolicy]) -> SamplesByPolicy:
    """All tasks as one, prompts named by task; policies that every task has."""
    names = [name for name in next(iter(tasks.values())) if all(name in cells for cells in tasks.values())]
    return {
        name: [
            {**sample, "prompt_id": f"{task}/{sample['prompt_id']}"}
            for task, cells in tasks.items()
            for sample in cells[name]
        ]
        for name in names
    }
