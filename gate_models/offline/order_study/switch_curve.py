"""How early guidance may stop under each commit order: success S(t) of fresh runs that stop it at time t.

S(t) is the switch curve of Definition 1. Its horizon a* is the earliest fraction of the steps from which S stays within
`TOLERANCE` of S(T). S(T) depends on the order and is often lower in a guidance-first order. The horizon of such an
order is therefore also given against full CFG's S(T) in confidence order. Both orders run on the same prompts;
resampling these says how sure it is that the horizon moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decoding.sampling.block_schedule import step_at
from gate_models.committor.horizon import ensemble_horizon
from gate_models.offline.order_study.points import Group, Point, StudySetting
from gate_models.offline.runs.markdown import table
from gate_models.policies.names import parse_policy
from gate_models.statistics.intervals import Estimate

TOLERANCE: Final = 0.05
"""Success that the horizon of a switch curve may lose (Definition 1)."""
PLAIN, FIRST = "confidence", "guidance_boost"
REPLICATES: Final = 1000
SURE: Final = 0.95


@dataclass(frozen=True, slots=True)
class SwitchCurve:
    """S(t) of one order: success of runs that hand off at each fraction, and of those that never do."""

    fractions: tuple[float, ...]
    success: tuple[Estimate, ...]
    terminal: Estimate
    steps: int
    by_prompt: NDArray[np.float64] = field(repr=False)
    """[P, F + 1]: success of every prompt at every fraction, and at the end."""

    @property
    def horizon(self) -> float | None:
        """a* as a fraction of the steps; None: censored."""
        return self.horizon_to(self.terminal.value)

    def horizon_to(self, terminal: float) -> float | None:
        """The earliest fraction from which S stays within `TOLERANCE` of `terminal`; None where there is none."""
        return self._horizon(np.array([estimate.value for estimate in self.success]), terminal)

    def resampled(self, rows: NDArray[np.int64]) -> float:
        """a* of the prompts `rows`; 1 where it is censored."""
        means = self.by_prompt[rows].mean(0)
        horizon = self._horizon(means[:-1], float(means[-1]))
        return 1.0 if horizon is None else horizon

    def _horizon(self, success: NDArray[np.float64], terminal: float) -> float | None:
        at = [step_at(fraction, self.steps) for fraction in self.fractions]
        horizon = ensemble_horizon(at, success, terminal, self.steps, TOLERANCE)
        return None if horizon.censored else horizon.step / self.steps


def curves_of(setting: StudySetting, points: Sequence[Point]) -> dict[str, SwitchCurve]:
    """The switch curves of a group, by commit order; base decoding is both orders' S(0). Empty for mixed canvases."""
    if len(setting.steps) > 1:
        return {}
    named = {point.policy: parse_policy(point.policy).policy for point in points}
    base = next((point for point in points if named[point.policy].preset == "base"), None)
    parts: dict[str, tuple[dict[float, Point], Point]] = {}
    for order in (PLAIN, FIRST):
        serial = [p for p in points if named[p.policy].order == order and named[p.policy].tail_width == 1]
        serial = [point for point in serial if named[point.policy].boost_threshold is None]
        cuts = {
            gate.fraction: point
            for point in serial
            if (gate := named[point.policy].gate).source == "fraction" and gate.fraction is not None
        }
        full = [p for p in serial if named[p.policy].preset == "full_cfg" and named[p.policy].guided_width == 1]
        if base is not None and len(cuts) > 1 and full:
            parts[order] = {0.0: base} | cuts, full[0]
    used = [point for cuts, full in parts.values() for point in (*cuts.values(), full)]
    prompts = sorted(set.intersection(*(set(point.by_prompt) for point in used))) if used else []
    return {order: _curve(cuts, full, setting.steps[0], prompts) for order, (cuts, full) in parts.items()}


def _curve(cuts: Mapping[float, Point], full: Point, steps: int, prompts: Sequence[str]) -> SwitchCurve:
    fractions = sorted(cuts)
    every = [*(cuts[fraction] for fraction in fractions), full]
    matrix = np.array([[point.by_prompt[prompt] for point in every] for prompt in prompts])
    return SwitchCurve(tuple(fractions), tuple(cuts[cut].success for cut in fractions), full.success, steps, matrix)


@dataclass(frozen=True, slots=True)
class Move:
    """Where the horizon lies in both orders, and how often resampled prompts put it earlier or later."""

    group: Group
    plain: SwitchCurve
    first: SwitchCurve
    prompts: int
    earlier: float
    later: float

    @property
    def verdict(self) -> str:
        """Whether guidance first moves the horizon, at a share of 95 % of the resampled prompts."""
        return "earlier" if self.earlier >= SURE else "later" if self.later >= SURE else "not shown"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "task": self.group[0],
            "setting": str(self.group[1]),
            "prompts": self.prompts,
            "orders": {PLAIN: _content(self.plain), FIRST: _content(self.first)},
            "guidance_boost_to_full_cfg": self.first.horizon_to(self.plain.terminal.value),
            "earlier": round(self.earlier, 3),
            "later": round(self.later, 3),
            "verdict": self.verdict,
        }


def _content(curve: SwitchCurve) -> dict[str, Any]:
    points = {f"{cut:g}": success.rounded for cut, success in zip(curve.fractions, curve.success, strict=True)}
    return {"success": points | {"1": curve.terminal.rounded}, "horizon": curve.horizon}


def moves(groups: Mapping[Group, Sequence[Point]]) -> list[Move]:
    """Every group that has the curve of both orders."""
    kept = []
    for group, points in groups.items():
        curves = curves_of(group[1], points)
        if len(curves) < len((PLAIN, FIRST)):
            continue
        count = len(curves[PLAIN].by_prompt)
        drawn = np.random.default_rng(0).integers(count, size=(REPLICATES, count))
        plain, first = (np.array([curves[order].resampled(rows) for rows in drawn]) for order in (PLAIN, FIRST))
        earlier, later = float((first < plain).mean()), float((first > plain).mean())
        kept.append(Move(group, curves[PLAIN], curves[FIRST], count, earlier, later))
    return kept


def switch_table(compared: Sequence[Move]) -> str:
    """Markdown: a family a line."""
    heads = ["family", "prompts", "S(0)", "confidence: S(T)", "a*", "guidance first: S(T)", "a*"]
    heads += ["a* to confidence's S(T)", "resampled: earlier, later", "horizon moves"]
    return table(heads, map(_row, compared))


def _row(one: Move) -> list[str]:
    terminal = one.plain.terminal.value
    return [
        one.group[0],
        str(one.prompts),
        f"{one.plain.success[0].value:.2f}",
        f"{terminal:.2f}",
        at(one.plain.horizon),
        f"{one.first.terminal.value:.2f}",
        at(one.first.horizon),
        at(one.first.horizon_to(terminal)),
        f"{one.earlier:.0%}, {one.later:.0%}",
        one.verdict,
    ]


def at(horizon: float | None) -> str:
    """A horizon as tables show it."""
    return "none" if horizon is None else f"{horizon:.2f}"
