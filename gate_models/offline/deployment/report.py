"""The deployment view as tables, numbers and a picture: `python -m gate_models.offline.deployment.report RESULT...`."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gate_models.offline.deployment.results import FULL, Cells, Row, curves_of, merged, pooled, rows_of
from gate_models.offline.deployment.verdicts import ALL, Rows, aim, line, ruled, winners
from gate_models.offline.scorers.fluency import load_judge
from gate_models.statistics.intervals import Estimate

AIMS: Final = "handoff:0.3:repair3x4,base:repair3x4,auto"


def table(task: str, rows: Sequence[Row]) -> str:
    """Markdown: one line a policy, then each beside every best-of-n run at its own rows."""
    heads = ["policy", "success [95 %]", f"minus {FULL} [95 %]", "rows", f"minus {FULL} [95 %]", "ppl", "repeats"]
    lines = [f"### {task} ({rows[0].prompts} prompts)", "", *ruled(heads)]
    for row in rows:
        cells = [
            row.policy,
            f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]",
            "" if row.gain is None else row.gain.signed,
            f"{row.rows:.1f}" + ("" if row.of_full is None else f" ({row.of_full:.0%})"),
            "" if row.more_rows is None else _span(row.more_rows),
            "-" if row.perplexity is None else f"{row.perplexity:.0f}",
            f"{row.repeats:.2f}",
        ]
        lines.append(line(cells))
    return "\n".join([*lines, *_best_of(rows)]) + "\n"


def _span(estimate: Estimate) -> str:
    return f"{estimate.value:+.1f} [{estimate.low:+.1f}, {estimate.high:+.1f}]"


def _best_of(rows: Sequence[Row]) -> list[str]:
    """Success of each policy minus best-of-n's at the same rows; policies that none is set beside are left out."""
    runs = list(rows[0].best_of)
    lines = []
    for row in rows:
        cells = [_signed(row.best_of[name].difference) for name in runs]
        if any(cells):
            lines.append(line([row.policy, *cells]))
    if not lines:
        return []
    return ["", "Minus best-of-n stopped at the same rows [95 %]:", "", *ruled(["policy", *runs]), *lines]


def _signed(estimate: Estimate | None) -> str:
    return "" if estimate is None else estimate.signed


def best_of_points(task: str, cells: Cells) -> str:
    """The best-of-n runs of a task spread out."""
    lines = []
    for curve in curves_of(cells):
        points = ", ".join(f"{s:.3f} at {r:.1f}" for r, s in zip(*curve.points(), strict=True))
        lines.append(f"{task}, {curve.name}, n = 1, 2, ...: {points}")
    return "\n\n".join(lines) + "\n"


def frontier(rows: Sequence[Row], cells: Cells, title: str, path: Path) -> None:
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


def as_json(rows: Rows, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every number of the tables, with what they were made from."""
    kept = ("model", "model_hash", "precision", "seed", "versions", "machine", "settings")
    made = [{name: result.get(name) for name in kept} for result in results]
    return {"made_from": made, "tasks": {task: [asdict(row) for row in listed] for task, listed in rows.items()}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write `deployment.md`, `deployment.json` and `frontier.png`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="of astargate evaluate --out")
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.add_argument("--aim", default=AIMS, help="policies that are compared family by family")
    given = parser.parse_args(arguments)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in given.results]
    tasks, judge = merged(results), load_judge()
    rows = {task: rows_of(cells, judge) for task, cells in tasks.items()}
    whole = pooled(tasks)
    rows[ALL] = rows_of(whole, judge)
    parts = [table(ALL, rows[ALL]), *(aim(rows, name.strip()) for name in given.aim.split(","))]
    parts.append(winners(rows, {**tasks, ALL: whole}))
    parts += [table(task, listed) for task, listed in rows.items() if task != ALL]
    parts += [best_of_points(ALL, whole), *(best_of_points(task, cells) for task, cells in tasks.items())]
    given.out.mkdir(parents=True, exist_ok=True)
    content = as_json(rows, results)
    (given.out / "deployment.md").write_text("\n".join(parts), encoding="utf-8")
    (given.out / "deployment.json").write_text(json.dumps(_rounded(content), indent=0) + "\n", encoding="utf-8")
    title = (
        f"{results[0]['model']} {results[0]['model_hash']}, {rows[ALL][0].prompts} prompts, seed {results[0]['seed']}"
    )
    frontier(rows[ALL], whole, title, given.out / "frontier.png")


def _rounded(content: Any) -> Any:
    if isinstance(content, float):
        return round(content, 5)
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    return [_rounded(value) for value in content] if isinstance(content, list | tuple) else content


if __name__ == "__main__":
    main()
