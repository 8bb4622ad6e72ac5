"""Both commit orders at the same rows: which policies to compare, and tables and plots from their results.

`--policies` prints a list for `astargate evaluate`; `--result` reads what that wrote, pools seeds, and writes a report
(`report.md`), the numbers behind it (`study.json`) and two plots into `--out`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gate_models.offline.fluency import load_judge
from gate_models.offline.gate_results import Fluency
from gate_models.offline.order_plots import plot_frontiers, plot_switch
from gate_models.offline.order_points import Group, Match, Point, matches, points, read

FIRST: Final = "guidance_boost:b0.8"
MAIN: Final = (
    "base",
    "full_cfg",
    "handoff:0.3",
    "handoff:0.6",
    "handoff:0.6:k4",
    "full_cfg:k4",
    "drained:0.7:k4",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
    f"drained:0.5:{FIRST}:m4:k2",
)
"""On every family, at its own canvas."""
CALIBRATED: Final = ("calibrated", "calibrated:k4", f"calibrated:{FIRST}", f"calibrated:{FIRST}:k4", "constant")
"""The family's own threshold or cut, as the server takes it; where there is none, guidance to the end."""
FACTORS: Final = (
    "base",
    "handoff:0.3",
    "handoff:0.6",
    "full_cfg",
    f"drained:0.5:{FIRST}",
    f"drained:0.5:{FIRST}:k4",
)
"""Where one of canvas, weight and temperature is moved."""
SWITCH_FRACTIONS: Final = (0.1, 0.15, 0.22, 0.3, 0.45, 0.6, 0.8)
SWITCH: Final = (
    "base",
    "full_cfg",
    "full_cfg:guidance_boost",
    *(f"handoff:{f:g}" for f in SWITCH_FRACTIONS),
    *(f"handoff:{f:g}:guidance_boost" for f in SWITCH_FRACTIONS),
)
"""The switch curve S(t) of Definition 1 in both orders: fresh runs that hand off at each fraction."""
WORDS: Final = (f"drained:0.5:{FIRST}:k2", f"drained:0.5:{FIRST}:m4:k2", f"drained:0.5:{FIRST}:m2:k2")
"""Whole words (with and `--without whole_words`) and re-checks."""
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "main": MAIN,
    "calibrated": CALIBRATED,
    "factors": FACTORS,
    "switch": SWITCH,
    "words": WORDS,
}


def group_table(found: Sequence[Point]) -> str:
    """All policies of one group by rows."""
    lines = [
        "| policy | success | 95 % | loss to full CFG | rows | ppl | repeats | words | handoff |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for point in found:
        loss = "-" if point.loss is None else point.loss.signed
        span = f"{point.success.low:.2f}-{point.success.high:.2f}"
        handoff = "-" if point.handoff is None else f"{point.handoff:.2f}"
        lines.append(
            f"| {point.policy} | {point.success.value:.3f} | {span} | {loss} | {point.rows:.1f} | {_ppl(point)} "
            f"| {point.repeats:.2f} | {point.words:.1f} | {handoff} |"
        )
    return "\n".join(lines)


def matched_table(found: Mapping[Group, Sequence[Point]]) -> str:
    """Every guidance-first policy beside the best confidence-order policy at no more rows."""
    lines = [
        "| task | guidance first | rows | success | ppl | confidence order, no more rows | rows | success | ppl "
        "| difference | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (task, _), own in found.items():
        lines += [
            f"| {task} | {_cells(match.own)} | {_cells(match.other)} | {match.difference.signed} | {match.verdict} |"
            for match in matches(own)
        ]
    return "\n".join(lines)


def _cells(point: Point) -> str:
    return f"{point.policy} | {point.rows:.1f} | {point.success.value:.2f} | {_ppl(point)}"


def _ppl(point: Point) -> str:
    return "-" if point.perplexity is None else f"{point.perplexity:.0f}"


def verdicts(found: Mapping[Group, Sequence[Point]]) -> dict[str, dict[str, list[str]]]:
    """By policy: the tasks where it wins, loses and is even at matched rows."""
    counted: dict[str, dict[str, list[str]]] = {}
    for (task, _), own in found.items():
        for match in matches(own):
            row = counted.setdefault(match.own.policy, {"wins": [], "even": [], "loses": []})
            row[match.verdict].append(task)
    return counted


def study(found: Mapping[Group, Sequence[Point]], common: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers as plain JSON."""
    return {
        **common,
        "groups": [
            {
                "task": task,
                "setting": setting,
                "policies": [point.to_json() for point in own],
                "matched": [_match(match) for match in matches(own)],
            }
            for (task, setting), own in found.items()
        ],
    }


def _match(match: Match) -> dict[str, Any]:
    difference = match.difference
    return {
        "policy": match.own.policy,
        "against": match.other.policy,
        "difference": [round(value, 3) for value in (difference.value, difference.low, difference.high)],
        "verdict": match.verdict,
    }


def report(found: Mapping[Group, Sequence[Point]], common: Mapping[str, Any], commands: Sequence[str]) -> str:
    """The whole study in Markdown."""
    head = (
        f"Model {common['model']} ({common['model_hash']}, {common['precision']}), seeds "
        f"{', '.join(map(str, common['seeds']))}, perplexity by {common['judge']}. Intervals: 95 %, bootstrap over "
        "prompts; every policy on every prompt. *Loss*: full CFG in confidence order less the policy, on the same "
        "prompts. *Difference*: guidance first less the best confidence-order policy at no more rows, which was chosen "
        "on these prompts (a reading against guidance first); *wins* or *loses* where its interval excludes 0. Full "
        "CFG of several positions a step is no candidate there: its texts repeat themselves (see the tables)."
    )
    parts = ["# Commit order study", head, *(f"```\n{command}\n```" for command in commands)]
    parts += ["## At matched rows", matched_table(found), "## All policies"]
    for (task, setting), own in found.items():
        parts += [f"### {task}: {setting}, {own[0].prompts} prompts", group_table(own)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", choices=LISTS, help="print the policies of a list and stop")
    parser.add_argument("--result", type=Path, nargs="+", help="JSON of astargate evaluate")
    parser.add_argument("--switch", type=Path, nargs="+", help="results of the switch list, to be drawn")
    parser.add_argument("--command", action="append", default=[], help="how the results were made, for the report")
    parser.add_argument("--out", type=Path, help="folder to write")
    arguments = parser.parse_args()
    if arguments.policies:
        print(",".join(LISTS[arguments.policies]))
        return
    if not arguments.result or arguments.out is None:
        parser.error("give --policies, or --result with --out")
    fluency = Fluency(load_judge())
    texts, common = read(arguments.result)
    found = {group: points(own, fluency) for group, own in texts.items()}
    common = common | {"judge": fluency.judge.name}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "report.md").write_text(report(found, common, arguments.command), encoding="utf-8")
    lines = json.dumps(study(found, common) | {"commands": arguments.command}, indent=None)
    (arguments.out / "study.json").write_text(lines.replace('{"policy"', '\n{"policy"') + "\n", encoding="utf-8")
    plot_frontiers(found, arguments.out / "frontiers.png")
    if arguments.switch:
        curves, _ = read(arguments.switch)
        plot_switch({group: points(own, fluency) for group, own in curves.items()}, arguments.out / "switch.png")
    print(matched_table(found))


if __name__ == "__main__":
    main()
