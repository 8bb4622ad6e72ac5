"""What each gate of an audit achieved: success, rows, fluency and repeats, and differences with prompts as the unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.gate_audit.arms import Arms
from gate_models.offline.scorers.fluency import Fluency
from gate_models.statistics.bootstrap import bootstrap, difference_of_success
from gate_models.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class SourceResult:
    """One source at one tail width over a population of prompts."""

    source: str
    width: int
    prompts: int
    success: Estimate
    rows: float
    perplexity: float | None
    repeats: float
    handed_off: float
    """Share of runs whose guidance ended before the last step."""
    differs: float
    """Share of runs that hand off at another step than the constant."""
    against: Mapping[str, Estimate]
    """Success less that of `oracle`, `constant`, `full_cfg` and, at the same rows, of fixed cuts (`frontier`)."""


def paired(one: Arms, other: Arms) -> Estimate:
    """Success of `one` less `other`, run by run, averaged over each prompt's samples; bootstrap over prompts."""
    return difference_of_success(one.by_prompt(one.success - other.success))


def at_same_rows(arms: Arms, fixed: Sequence[Arms], family: NDArray[np.int64] | None = None) -> Estimate:
    """Success less that of the best schedule of fixed cuts that costs the same rows, family by family.

    `family` [runs] numbers the family of each run (None: all are of one). The rival knows the family, as a gate does:
    one cut for all families would credit the gate with knowing that.
    """
    groups = np.zeros(arms.success.size, dtype=np.int64) if family is None else family
    differences = []
    for group in np.unique(groups):
        own = arms.of(groups == group)
        differences.append(own.by_prompt(own.success - _mixture(own, [cut.of(groups == group) for cut in fixed])))
    return difference_of_success(np.concatenate(differences))


def _mixture(arms: Arms, fixed: Sequence[Arms]) -> NDArray[np.float64]:
    """Success [runs] of a mixture of two neighbouring fixed cuts that costs the same rows on average.

    The frontier of fixed cuts (with `full_cfg` at its end) is mixed linearly: a coin between two cuts has the mean of
    their rows and of their success, so it is a policy that could be served. Beyond its ends the nearest cut stands.
    """
    ordered = sorted(fixed, key=lambda cut: float(cut.rows.mean()))
    costs = np.array([cut.rows.mean() for cut in ordered])
    budget = float(np.clip(arms.rows.mean(), costs[0], costs[-1]))
    right = int(np.clip(np.searchsorted(costs, budget), 1, len(costs) - 1))
    gap = costs[right] - costs[right - 1]
    share = 0.0 if gap == 0 else (budget - costs[right - 1]) / gap
    mixed: NDArray[np.float64] = (1 - share) * ordered[right - 1].success + share * ordered[right].success
    return mixed


def results(
    arms: Iterable[Arms],
    fluency: Fluency,
    kept: NDArray[np.bool_] | None = None,
    family: NDArray[np.int64] | None = None,
) -> list[SourceResult]:
    """Every source's numbers, over all runs or those that `kept` [runs] marks.

    `family` [runs] numbers the family of each run where there are several.
    """
    chosen = [one if kept is None else one.of(kept) for one in arms]
    known = {(one.source, one.width): one for one in chosen}
    groups = family if family is None or kept is None else family[kept]
    return [_result(one, known, fluency, groups) for one in chosen]


def _result(
    one: Arms, known: Mapping[tuple[str, int], Arms], fluency: Fluency, family: NDArray[np.int64] | None
) -> SourceResult:
    full = known["full_cfg", 1]
    against = {"full_cfg": paired(one, full)}
    for name in ("oracle", "constant"):
        other = known.get((name, one.width))
        if other is not None:
            against[name] = paired(one, other)
    fixed = [arms for (name, width), arms in known.items() if name.startswith("fixed ") and width == one.width]
    if fixed:
        against["frontier"] = at_same_rows(one, [*fixed, full], family)
    constant = known.get(("constant", one.width))
    return SourceResult(
        source=one.source,
        width=one.width,
        prompts=int(np.unique(one.prompt).size),
        success=bootstrap(one.by_prompt(one.success)),
        rows=float(one.by_prompt(one.rows).mean()),
        perplexity=fluency.perplexity(one.texts),
        repeats=float(one.repeats.mean()),
        handed_off=float((one.step < full.step).mean()),
        differs=0.0 if constant is None else float((one.step != constant.step).mean()),
        against=against,
    )
