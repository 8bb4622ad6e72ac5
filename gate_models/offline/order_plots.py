"""Plots of the commit order study: success over rows for each family, and the switch curve under both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from decoding.policy import step_at
from gate_models.offline.horizon import ensemble_horizon
from gate_models.offline.intervals import Estimate
from gate_models.offline.order_points import TAIL, Group, Point, frontier
from gate_models.offline.policy_names import parse_policy

SERIES: Final[Mapping[str, str]] = {
    "confidence order": "#4c72b0",
    f"confidence order{TAIL}": "#8172b3",
    "guidance first": "#dd8452",
    f"guidance first{TAIL}": "#c44e52",
}
TOLERANCE: Final = 0.05
"""Success that the horizon of a switch curve may lose (Definition 1)."""
COLUMNS: Final = 4
DPI: Final = 80


def plot_frontiers(found: Mapping[Group, Sequence[Point]], path: Path) -> None:
    """A panel a group: success over rows, every policy as a point, and each series' frontier as a line."""
    panels = _panels(len(found))
    for axes, ((task, setting), own) in zip(panels.axes, found.items(), strict=False):
        for series, colour in SERIES.items():
            mine = [point for point in own if point.series == series]
            if not mine:
                continue
            rows, success = [p.rows for p in mine], [p.success for p in mine]
            _bars(axes, rows, success, fmt="o", color=colour, ms=3.5, lw=0.6, alpha=0.55)
            best = frontier(mine)
            axes.plot([p.rows for p in best], [p.success.value for p in best], color=colour, lw=1.6, label=series)
        axes.set_title(f"{task} ({setting}, n = {own[0].prompts})", fontsize=8)
        axes.set_xlabel("forward evaluations a text", fontsize=7)
    panels.save(path)


@dataclass(frozen=True, slots=True)
class Curve:
    """S(t) of one order: success of runs that hand off at each fraction, and of those that never do."""

    fractions: tuple[float, ...]
    success: tuple[Estimate, ...]
    terminal: Estimate
    steps: int

    @property
    def horizon(self) -> float | None:
        """a* at `TOLERANCE` as a fraction of the steps; None: censored."""
        at = [step_at(fraction, self.steps) for fraction in self.fractions]
        values = np.array([estimate.value for estimate in self.success])
        found = ensemble_horizon(at, values, self.terminal.value, self.steps, TOLERANCE)
        return None if found.censored else found.step / self.steps


def curves_of(setting: str, own: Sequence[Point]) -> dict[str, Curve]:
    """The switch curves of a group, by commit order; base decoding is both orders' S(0)."""
    named = {point.policy: parse_policy(point.policy).policy for point in own}
    steps = int(setting.split(",", maxsplit=1)[0].removeprefix("T = "))
    base = next(point.success for point in own if named[point.policy].preset == "base")
    found = {}
    for order in ("confidence", "guidance_boost"):
        mine = [point for point in own if named[point.policy].order == order and named[point.policy].tail_width == 1]
        mine = [point for point in mine if named[point.policy].boost_threshold is None]
        cuts = {0.0: base} | {
            gate.fraction: point.success
            for point in mine
            if (gate := named[point.policy].gate).source == "fraction" and gate.fraction is not None
        }
        full = [p.success for p in mine if named[p.policy].preset == "full_cfg" and named[p.policy].guided_width == 1]
        if len(cuts) > 2 and full:
            at = sorted(cuts)
            found[order] = Curve(tuple(at), tuple(cuts[cut] for cut in at), full[0], steps)
    return found


def plot_switch(found: Mapping[Group, Sequence[Point]], path: Path) -> None:
    """A panel a group: S(t) under both orders, each with its horizon."""
    panels = _panels(len(found))
    colours = {"confidence": SERIES["confidence order"], "guidance_boost": SERIES["guidance first"]}
    for axes, ((task, setting), own) in zip(panels.axes, found.items(), strict=False):
        for order, curve in curves_of(setting, own).items():
            x, y = [*curve.fractions, 1.0], [*curve.success, curve.terminal]
            word = "none" if curve.horizon is None else f"{curve.horizon:.2f}"
            _bars(axes, x, y, fmt="o-", color=colours[order], ms=3.5, lw=1.4, label=f"{order}, a* = {word}")
            if curve.horizon is not None:
                axes.axvline(curve.horizon, color=colours[order], ls=":", lw=1)
        axes.set_title(f"{task} ({setting}, n = {own[0].prompts})", fontsize=8)
        axes.set_xlabel("handoff, share of the steps", fontsize=7)
    panels.save(path)


def _bars(axes: Any, x: Sequence[float], y: Sequence[Estimate], **style: Any) -> None:
    values = [point.value for point in y]
    spread = [[point.value - point.low for point in y], [point.high - point.value for point in y]]
    axes.errorbar(x, values, yerr=spread, elinewidth=0.6, **style)


@dataclass(frozen=True, slots=True)
class _Panels:
    figure: Figure
    axes: list[Any]

    def save(self, path: Path) -> None:
        for number, axes in enumerate(self.axes):
            if not axes.has_data():
                axes.set_visible(False)
                continue
            axes.set_ylabel("success", fontsize=7)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.25)
            if number == 0 or "a*" in "".join(axes.get_legend_handles_labels()[1]):
                axes.legend(fontsize=6, loc="lower right")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _panels(count: int) -> _Panels:
    columns = min(COLUMNS, max(1, count))
    lines = max(1, -(-count // columns))
    figure = Figure(figsize=(3.9 * columns, 3.0 * lines), layout="constrained")
    return _Panels(figure, list(figure.subplots(lines, columns, squeeze=False).flat))
