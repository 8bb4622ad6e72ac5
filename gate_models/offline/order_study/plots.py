"""Pictures of the commit order study: success over rows for each family, and the switch curve under both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from gate_models.offline.order_study.learned_gates import is_recorded
from gate_models.offline.order_study.matches import plain_policies
from gate_models.offline.order_study.points import TAIL, Group, Point, frontier
from gate_models.offline.order_study.switch_curve import FIRST, PLAIN, Move, SwitchCurve, at
from gate_models.statistics.intervals import Estimate

ORDERS: Final[Mapping[str, str]] = {"confidence order": "#4c72b0", "guidance first": "#c44e52"}
REPEATING: Final = "full CFG, several a step (texts repeat)"
NAMES: Final[Mapping[str, str]] = {"base": "base", "full_cfg": "full CFG"}
"""Policies that a panel names."""
ORACLE: Final = "handoff at the measured horizon (oracle)"
COLOURS: Final = {PLAIN: ORDERS["confidence order"], FIRST: ORDERS["guidance first"]}
COLUMNS: Final = 4
DPI: Final = 90


def plot_frontiers(groups: Mapping[Group, Sequence[Point]], path: Path) -> None:
    """A panel a group: success over rows, every policy as a point (a square with a parallel tail), and each order's
    frontier as a line with intervals.

    Policies that fall back to full CFG are left out; full CFG of several positions a step and measured horizons stand
    apart, as in the comparisons.
    """
    panels = _panels(len(groups))
    for axes, ((task, setting), points) in zip(panels.axes, groups.items(), strict=False):
        plain = plain_policies(points)
        for order, colour in ORDERS.items():
            drawn = [
                p for p in points if p.series.startswith(order) and (p in plain or p.is_first) and not p.falls_back
            ]
            if drawn:
                _order(axes, order, colour, drawn)
        others = [p for p in points if p.series.startswith("confidence") and p not in plain]
        for label, marker, known in ((REPEATING, "x", False), (ORACLE, "*", True)):
            if apart := [point for point in others if is_recorded(point) == known]:
                axes.plot(*_places(apart), marker, color="#777777", ms=5, label=label)
        for point in points:
            if point.policy in NAMES:
                where = point.share, point.success.value
                axes.annotate(NAMES[point.policy], where, (0, -9), textcoords="offset points", ha="center", fontsize=6)
        axes.set_title(f"{task} (T = {_steps(setting.steps)}, n = {points[0].prompts})", fontsize=9)
        axes.set_xlabel("forward evaluations, share of full CFG", fontsize=7)
        axes.set_xlim(0.05, 1.1)
    panels.save(path, "success")


def _order(axes: Any, order: str, colour: str, points: Sequence[Point]) -> None:
    for marker, tail in (("o", False), ("s", True)):
        kind = [point for point in points if point.series.endswith(TAIL) == tail]
        axes.plot(*_places(kind), marker, color=colour, ms=3.5, alpha=0.6, mew=0)
    best = frontier(points)
    _bars(axes, [p.share for p in best], [p.success for p in best], fmt="-", color=colour, lw=1.5, label=order)


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.share for point in points], [point.success.value for point in points]


def _steps(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def plot_switch(moves: Sequence[Move], path: Path) -> None:
    """A panel a group: S(t) under both orders side by side, each with its S(T) and its horizon."""
    panels = _panels(len(moves), columns=3)
    for axes, one in zip(panels.axes, moves, strict=False):
        for shift, order, curve in ((-0.006, PLAIN, one.plain), (0.006, FIRST, one.first)):
            _curve(axes, order, curve, shift)
        sure = f"earlier in {one.earlier:.0%}, later in {one.later:.0%} of resamples"
        axes.set_title(f"{one.group[0]} (T = {one.plain.steps}, n = {one.prompts})\na*: {sure}", fontsize=8)
        axes.set_xlabel("handoff, share of the steps", fontsize=7)
        axes.legend(fontsize=6.5, loc="lower right")
    panels.save(path, "success of runs that hand off there, S(t)")


def _curve(axes: Any, order: str, curve: SwitchCurve, shift: float) -> None:
    x = [fraction + shift for fraction in (*curve.fractions, 1.0)]
    label = f"{order}: S(T) = {curve.terminal.value:.2f}, a* = {at(curve.horizon)}"
    colour = COLOURS[order]
    _bars(axes, x, [*curve.success, curve.terminal], color=colour, lw=1.4, ms=3.5, label=label)
    axes.axhline(curve.terminal.value, color=colour, ls=":", lw=0.8)
    if curve.horizon is not None:
        axes.axvline(curve.horizon + shift, color=colour, ls="--", lw=1)


def _bars(axes: Any, x: Sequence[float], y: Sequence[Estimate], **style: Any) -> None:
    values = [point.value for point in y]
    spread = [[max(0.0, p.value - p.low) for p in y], [max(0.0, p.high - p.value) for p in y]]
    axes.errorbar(x, values, yerr=spread, elinewidth=0.6, **{"fmt": "o-"} | style)


@dataclass(frozen=True, slots=True)
class _Panels:
    figure: Figure
    axes: list[Any]

    def save(self, path: Path, what: str) -> None:
        handles: dict[str, Any] = {}
        for axes in self.axes:
            if not axes.has_data():
                axes.set_visible(False)
                continue
            axes.set_ylabel(what, fontsize=7)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.25)
            if axes.get_legend() is None:
                drawn, names = axes.get_legend_handles_labels()
                handles |= dict(zip(names, drawn, strict=True))
        if handles:
            self.figure.legend(handles.values(), handles.keys(), fontsize=9, ncols=4, loc="outside upper center")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _panels(count: int, columns: int = COLUMNS) -> _Panels:
    columns = min(columns, max(1, count))
    lines = max(1, -(-count // columns))
    figure = Figure(figsize=(4.1 * columns, 3.1 * lines + 0.4), layout="constrained")
    return _Panels(figure, list(figure.subplots(lines, columns, squeeze=False).flat))
