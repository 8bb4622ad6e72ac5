"""What reopening gains: the success of one arm of a repair census less another's, paired within a prompt.

The seeds of a prompt are averaged. Intervals bootstrap the prompts; below `FEWEST` prompts there is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gate_models.offline.repair_census.arms import CONTROL
from gate_models.statistics.bootstrap import paired_bootstrap
from gate_models.statistics.intervals import Estimate

UnitEntry = Mapping[str, Any]
ANCHORS: Final = ("pre", "post")
FEWEST: Final = 5
"""Prompts that an interval needs: a bootstrap of fewer says more than is known."""


def arms_of(unit: UnitEntry, anchor: str) -> dict[tuple[str, int], Mapping[str, Any]]:
    """A unit's arms at an anchor, by selector and K (restart and the control: 0)."""
    return {(arm["arm"], arm["count"]): arm for arm in unit.get("arms", ()) if arm["anchor"] == anchor}


def successes(units: Iterable[UnitEntry], anchor: str, arm: tuple[str, int]) -> dict[tuple[str, str], float]:
    """Success of an arm by (task, prompt), seeds averaged."""
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for unit in units:
        measured = arms_of(unit, anchor).get(arm)
        if measured is not None:
            rates[unit["task"], unit["prompt"]].append(float(np.mean(measured["success"])))
    return {prompt: float(np.mean(listed)) for prompt, listed in rates.items()}


def arm_of(name: str, count: int) -> tuple[str, int]:
    """The arm of a selector at K = `count`."""
    return name, 0 if name in {CONTROL, "restart"} else count


def gained(
    units: Sequence[UnitEntry], anchor: str, arm: tuple[str, int], other: tuple[str, int] = (CONTROL, 0)
) -> tuple[Estimate, int] | None:
    """Success of an arm minus another's, paired by prompt, and the number of prompts; None without any."""
    rates, reference = successes(units, anchor, arm), successes(units, anchor, other)
    return (paired_bootstrap(rates, reference), len(rates)) if rates.keys() & reference.keys() else None


def shown(gain: tuple[Estimate, int] | None) -> str:
    """A gain with its interval, where there are prompts enough."""
    if gain is None:
        return "-"
    estimate, prompts = gain
    return estimate.signed if prompts >= FEWEST else f"{estimate.value:+.3f}"


def gain(units: Sequence[UnitEntry], anchor: str, arm: tuple[str, int], other: tuple[str, int] = (CONTROL, 0)) -> str:
    """`gained`, as tables show it."""
    return shown(gained(units, anchor, arm, other))


def mean(values: Iterable[float]) -> str:
    """A mean as tables show it."""
    listed = list(values)
    return f"{np.mean(listed):.3f}" if listed else "-"


def mean_gain(
    units: Sequence[UnitEntry], anchor: str, selectors: Sequence[str], count: int
) -> tuple[Estimate, int] | None:
    """`gained` at K = `count`, averaged over selectors."""
    by_selector = [successes(units, anchor, arm_of(name, count)) for name in selectors]
    control = successes(units, anchor, (CONTROL, 0))
    shared = set(control).intersection(*by_selector) if by_selector else set()
    if not shared:
        return None
    means = {prompt: float(np.mean([rates[prompt] for rates in by_selector])) for prompt in shared}
    return paired_bootstrap(means, control), len(shared)


def agreement(units: Sequence[UnitEntry], one: str, other: str, anchors: Sequence[str] = ANCHORS) -> str:
    """How often two selectors pick the same position at K = 1, over all anchored states."""
    same = [
        arms[one, 1]["positions"] == arms[other, 1]["positions"]
        for unit in units
        for arms in (arms_of(unit, anchor) for anchor in anchors)
        if (one, 1) in arms and (other, 1) in arms
    ]
    return f"{np.mean(same):.2f} of {len(same)}" if same else "-"
