"""The deployment view as tables, numbers and a picture: what `astargate deployment report` writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gate_models.offline.deployment.results import FULL, PolicyRow, SamplesByPolicy, curves_of, merged, pooled, rows_of
from gate_models.offline.deployment.verdicts import ALL, PolicyRows, by_family, winners
from gate_models.offline.runs import markdown
from gate_models.offline.scorers.fluency import load_judge
from gate_models.statistics.intervals import Estimate

COMPARED: Final = ("handoff:0.3:repair3x4", "base:repair3x4", "auto")
"""Policies that are compared family by family unless others are named."""


def table(task: str, rows: Sequence[PolicyRow]) -> str:
    """Markdown: one line a policy, then each beside every best-of-n run at its own rows."""
    heads = ["policy", "success [95 %]", f"minus {FULL} [95 %]", "rows", f"minus {FULL} [95 %]", "ppl", "repeats"]
    policies = markdown.table(heads, map(_cells, rows))
    return "\n".join([f"### {task} ({rows[0].prompts} prompts)", "", policies, *_best_of(rows)]) + "\n"


def _cells(row: PolicyRow) -> list[str]:
    return [
        row.policy,
        f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]",
        "" if row.gain is None else row.gain.signed,
        f"{row.rows:.1f}" + ("" if row.of_full is None else f" ({row.of_full:.0%})"),
        "" if row.more_rows is None else _span(row.more_rows),
        "-" if row.perplexity is None else f"{row.perplexity:.0f}",
        f"{row.repeats:.2f}",
    ]


def _span(estimate: Estimate) -> str:
    return f"{estimate.value:+.1f} [{estimate.low:+.1f}, {estimate.high:+.1f}]"


def _best_of(rows: Sequence[PolicyRow]) -> list[str]:
    """Success of each policy minus best-of-n's at the same rows; policies that none is set beside are left out."""
    runs = list(rows[0].best_of)
    differences = ([row.policy, *(_signed(row.best_of[name].difference) for name in runs)] for row in rows)
    lines = [cells for cells in differences if any(cells[1:])]
    if not lines:
        return []
    return ["", "Minus best-of-n stopped at the same rows [95 %]:", "", markdown.table(["policy", *runs], lines)]


def _signed(estimate: Estimate | None) -> str:
    return "" if estimate is None else estimate.signed


def best_of_points(task: str, cells: SamplesByPolicy) -> str:
    """The best-of-n runs of a task spread out."""
    lines = []
    for curve in curves_of(cells):
        points = ", ".join(f"{s:.3f} at {r:.1f}" for r, s in zip(*curve.points(), strict=True))
        lines.append(f"{task}, {curve.name}, n = 1, 2, ...: {points}")
    return "\n\n".join(lines) + "\n"


def frontier(rows: Sequence[PolicyRow], cells: SamplesByPolicy, title: str, path: Path) -> None:
    """Success (above) and perplexity (below) against rows: policies as points, best-of-n as lines."""
    figure = Figure(figsize=(7.2, 7.6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    curves = curves_of(cells)
    colours = iter(colormaps["tab20"].colors)  # type: ignore[attr-defined]
    for curve in curves:
        above.plot(*curve.points(), ".--", lw=1, color=next(colours), label=curve.name)
    for row in rows:
        if row.policy in {curve.name for curve in curves}:
            continue
        bars = [[row.success.value - row.success.low], [row.success.high - row.success.value]]
        shown = {"fmt": "o", "ms": 5, "lw": 0.6, "color": next(colours)}
        above.errorbar(row.rows, row.success.value, yerr=bars, label=row.policy, **shown)
        below.errorbar(row.rows, math.nan if row.perplexity is None else row.perplexity, **shown)
    above.set_ylabel("success, 95 % over prompts")
    above.legend(fontsize=6, ncols=2, loc="lower right")
    below.set_yscale("log")
    below.set_ylabel("perplexity (shipped judge)")
    below.set_xlabel("forward evaluations a text")
    for axis in (above, below):
        axis.grid(alpha=0.3)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def as_json(rows: PolicyRows, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every number of the tables, with what they were made from."""
    kept = ("model", "model_hash", "precision", "seed", "versions", "machine", "settings")
    made = [{name: result.get(name) for name in kept} for result in results]
    return {"made_from": made, "tasks": {task: [asdict(row) for row in listed] for task, listed in rows.items()}}


def write(paths: Sequence[Path], out: Path, compared: Sequence[str] = COMPARED) -> None:
    """Write `deployment.md`, `deployment.json` and `frontier.png` into the folder `out`.

    `compared`: policies that are compared family by family. Raises `ValueError` where the results are of different
    models or seeds.
    """
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    tasks, judge = merged(results), load_judge()
    rows = {task: rows_of(cells, judge) for task, cells in tasks.items()}
    whole = pooled(tasks)
    rows[ALL] = rows_of(whole, judge)
    out.mkdir(parents=True, exist_ok=True)
    (out / "deployment.md").write_text(_report(rows, {**tasks, ALL: whole}, compared), encoding="utf-8")
    content = _rounded(as_json(rows, results))
    (out / "deployment.json").write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    title = (
        f"{results[0]['model']} {results[0]['model_hash']}, {rows[ALL][0].prompts} prompts, seed {results[0]['seed']}"
    )
    frontier(rows[ALL], whole, title, out / "frontier.png")


def _report(rows: PolicyRows, tasks: Mapping[str, SamplesByPolicy], compared: Sequence[str]) -> str:
    """All prompts together first, then family by family."""
    families = [task for task in rows if task != ALL]
    parts = [table(ALL, rows[ALL]), *(by_family(rows, policy) for policy in compared), winners(rows, tasks)]
    parts += [table(task, rows[task]) for task in families]
    parts += [best_of_points(task, tasks[task]) for task in (ALL, *families)]
    return "\n".join(parts)


def _rounded(content: Any) -> Any:
    if isinstance(content, float):
        return round(content, 5)
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    return [_rounded(value) for value in content] if isinstance(content, list | tuple) else content
