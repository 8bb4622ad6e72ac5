"""Both commit orders at the same rows: which policies to compare, and a frontier plot and table from their results.

`--policies` prints the list for `astargate evaluate`; `--result` reads what that wrote. Every policy runs on every
prompt (intention to treat); intervals are Wilson's over texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gate_models.offline.policy_names import parse_policy

CONFIDENCE: Final = (
    "base",
    "handoff:0.15",
    "handoff:0.3",
    "handoff:0.45",
    "handoff:0.6",
    "full_cfg",
    "handoff:0.3:k4",
    "handoff:0.6:k4",
)
BOOST: Final = (
    "handoff:0.15:guidance_boost",
    "handoff:0.3:guidance_boost",
    "drained:0.5:guidance_boost",
    "drained:0.3:guidance_boost",
    "drained:0.5:guidance_boost:b0.8",
    "drained:0.5:guidance_boost:b0.8:k2",
    "drained:0.5:guidance_boost:b0.8:k4",
    "drained:0.5:guidance_boost:b0.8:m4",
    "drained:0.5:boost_confidence",
)
SERIES: Final[Mapping[str, str]] = {
    "confidence order": "#4c72b0",
    "guidance first": "#dd8452",
    "guidance first, parallel tail": "#c44e52",
    "confidence order, parallel tail": "#8172b3",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One policy on one task."""

    policy: str
    series: str
    rows: float
    success: float
    low: float
    high: float
    perplexity: float | None
    repeats: float


def series_of(policy: str) -> str:
    """The group that a policy is drawn in."""
    own = parse_policy(policy).policy
    name = "confidence order" if own.order in ("confidence", "random") else "guidance first"
    return name + (", parallel tail" if own.tail_width > 1 else "")


def points(rows: Mapping[str, Mapping[str, Any]]) -> list[Point]:
    """The policies of one task by rows a text."""
    found = [
        Point(
            policy,
            series_of(policy),
            row["rows_per_sample"],
            row["success"],
            row["success_interval_95"][0],
            row["success_interval_95"][1],
            (row.get("fluency") or {}).get("perplexity"),
            row["adjacent_repeat_rate"],
        )
        for policy, row in rows.items()
    ]
    return sorted(found, key=lambda point: point.rows)


def frontier(found: Sequence[Point]) -> list[Point]:
    """The points that no cheaper (or equally dear) point of the series beats in success."""
    kept: list[Point] = []
    for point in sorted(found, key=lambda p: (p.rows, -p.success)):
        if not kept or point.success > kept[-1].success:
            kept.append(point)
    return kept


def matched_table(tasks: Mapping[str, Sequence[Point]]) -> str:
    """For each task and each guidance-first policy, the best confidence-order policy at no more rows."""
    lines = [
        "| task | guidance first | rows | success | ppl | repeats | confidence order at no more rows | rows | success "
        "| ppl | repeats |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, found in tasks.items():
        plain = [point for point in found if point.series.startswith("confidence")]
        for point in found:
            if not point.series.startswith("guidance"):
                continue
            cheaper = [other for other in plain if other.rows <= point.rows]
            if cheaper:
                best = max(cheaper, key=lambda other: other.success)
                lines.append(f"| {task} | {_cells(point)} | {_cells(best)} |")
    return "\n".join(lines) + "\n"


def _cells(point: Point) -> str:
    perplexity = "-" if point.perplexity is None else f"{point.perplexity:.0f}"
    span = f"{point.success:.2f} ({point.low:.2f}-{point.high:.2f})"
    return f"{point.policy} | {point.rows:.1f} | {span} | {perplexity} | {point.repeats:.2f}"


def plot(tasks: Mapping[str, Sequence[Point]], path: Path) -> None:
    """A panel a task: success over rows, one line (its frontier) and all points for each series."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # drawing is rare, and its import slow

    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * lines), layout="constrained")
    for number, (task, found) in enumerate(tasks.items(), 1):
        axes = figure.add_subplot(lines, columns, number)
        for series, colour in SERIES.items():
            own = [point for point in found if point.series == series]
            if not own:
                continue
            spread = [[p.success - p.low for p in own], [p.high - p.success for p in own]]
            values = [p.rows for p in own], [p.success for p in own]
            axes.errorbar(*values, yerr=spread, fmt="o", color=colour, ms=4, lw=0.6, alpha=0.55)
            best = frontier(own)
            axes.plot([p.rows for p in best], [p.success for p in best], color=colour, lw=1.8, label=series)
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("forward evaluations a text", fontsize=8)
        axes.set_ylabel("success", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
        if number == 1:
            axes.legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", action="store_true", help="print the policies to evaluate and stop")
    parser.add_argument("--result", type=Path, nargs="+", help="JSON of astargate evaluate")
    parser.add_argument("--plot", type=Path, help="PNG to write")
    arguments = parser.parse_args()
    if arguments.policies:
        print(",".join((*CONFIDENCE, *BOOST)))
        return
    if not arguments.result:
        parser.error("give --policies or --result")
    tasks = {
        task: points(cells["policies"])
        for path in arguments.result
        for task, cells in json.loads(path.read_text())["tasks"].items()
    }
    print(matched_table(tasks))
    if arguments.plot:
        plot(tasks, arguments.plot)


if __name__ == "__main__":
    main()
