"""The deployment view as tables, numbers and a picture: `python -m gate_models.offline.deployment_report RESULT...`."""

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

from gate_models.offline.deployment import FULL, Cells, Row, curves_of, merged, pooled, rows_of
from gate_models.offline.fluency import load_judge
from gate_models.offline.intervals import Estimate

ALL: Final = "all prompts"
Rows = Mapping[str, Sequence[Row]]
"""Rows by task; `ALL` pools them."""


def table(task: str, rows: Sequence[Row]) -> str:
    """Markdown: one line a policy."""
    runs = list(rows[0].best_of)
    heads = ["policy", "success [95 %]", f"minus {FULL} [95 %]", "rows", "of full CFG", "ppl", "repeats"]
    heads += [f"minus {name} at these rows [95 %]" for name in runs]
    lines = [f"### {task} ({rows[0].prompts} prompts)", "", _line(heads), "|" + "---|" * len(heads)]
    for row in rows:
        cells = [
            row.policy,
            f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]",
            "" if row.gain is None else row.gain.signed,
            f"{row.rows:.1f}",
            "" if row.of_full is None else f"{row.of_full:.0%}",
            "-" if row.perplexity is None else f"{row.perplexity:.0f}",
            f"{row.repeats:.2f}",
            *(_signed(row.best_of[name][1]) for name in runs),
        ]
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _signed(estimate: Estimate | None) -> str:
    return "" if estimate is None else estimate.signed


def best_of_points(task: str, cells: Cells) -> str:
    """The best-of-n runs of a task spread out."""
    lines = []
    for curve in curves_of(cells):
        points = ", ".join(f"{s:.3f} at {r:.1f}" for r, s in zip(*curve.points(), strict=True))
        lines.append(f"{task}, {curve.name}, n = 1, 2, ...: {points}")
    return "\n\n".join(lines) + "\n"


def aim(rows: Rows, policy: str) -> str:
    """Where a policy does what it is for, family by family: more success than full CFG at fewer rows, and more than
    every best-of-n at the same rows. "no worse" counts an equal success.
    """
    heads = ["family", "full CFG", policy, "more at fewer rows", "best of n at these rows", "beats it"]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    more = equal = beats = ties = families = 0
    for task, listed in rows.items():
        found = {row.policy: row for row in listed}
        if task == ALL or policy not in found or FULL not in found:
            continue
        own, full = found[policy], found[FULL]
        cheaper = own.rows < full.rows
        won, tied = (own.success.value > full.success.value), own.success.value == full.success.value
        named = {name: at for name, (at, _) in own.best_of.items() if at is not None}
        best = max(named.values(), default=None)
        ahead = None if best is None else own.success.value - best
        families += 1
        more, equal = more + (won and cheaper), equal + (tied and cheaper)
        beats += ahead is not None and ahead > 1e-9
        ties += ahead is not None and abs(ahead) <= 1e-9
        shown = "" if best is None else f"{best:.3f} ({max(named, key=named.__getitem__)})"
        verdict = "yes" if won and cheaper else "equal" if tied and cheaper else "no"
        judged = "-" if ahead is None else "yes" if ahead > 1e-9 else "tie" if ahead >= -1e-9 else "no"
        lines.append(
            _line(
                [
                    task,
                    f"{full.success.value:.3f} at {full.rows:.1f}",
                    f"{own.success.value:.3f} at {own.rows:.1f}",
                    verdict,
                    shown,
                    judged,
                ]
            )
        )
    counted = (
        f"`{policy}`: more success than full CFG at fewer rows on {more} of {families} families, equal on {equal} "
        f"more; ahead of every best-of-n at the same rows on {beats}, level on {ties} (point estimates)."
    )
    return "\n".join([*lines, "", counted]) + "\n"


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
    parser.add_argument(
        "--aim", default="handoff:0.3:repair3x4,auto", help="policies that are compared family by family"
    )
    given = parser.parse_args(arguments)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in given.results]
    tasks, judge = merged(results), load_judge()
    rows = {task: rows_of(cells, judge) for task, cells in tasks.items()}
    whole = pooled(tasks)
    rows[ALL] = rows_of(whole, judge)
    parts = [table(ALL, rows[ALL]), *(aim(rows, name.strip()) for name in given.aim.split(","))]
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
