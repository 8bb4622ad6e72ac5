"""The deployment view: success against forward evaluations of every policy, and best-of-n at the same rows.

Read from a result of `astargate evaluate --out`. A `:bestN` run holds best-of-n for every smaller n and every budget in
between: its samples remember after how many rows which text satisfied. Matched rows: best-of-n stopped at the budget at
which its mean rows equal the other policy's, linear in between.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.inference import paired_bootstrap
from gate_models.offline.policy_names import parse_policy
from gate_models.offline.text_metrics import wilson

Samples = Sequence[Mapping[str, Any]]


def best_of_curve(samples: Samples) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(mean rows, success) of best-of-1, -2, ... of a `:bestN` run, each stopped at its first success."""
    histories = [sample["history"] for sample in samples]
    rows, success = [], []
    for tries in range(1, max(map(len, histories)) + 1):
        ends = [history[min(tries, len(history)) - 1] for history in histories]
        rows.append(float(np.mean([end[0] for end in ends])))
        success.append(float(np.mean([end[1] for end in ends])))
    return np.array(rows), np.array(success)


def matched(rows: float, curve: tuple[NDArray[np.float64], NDArray[np.float64]]) -> float | None:
    """Success of best-of-n at mean `rows`; None beyond what was run, or below one text."""
    own_rows, success = curve
    if not own_rows[0] <= rows <= own_rows[-1]:
        return None
    return float(np.interp(rows, own_rows, success))


def by_prompt(samples: Samples) -> dict[str, float]:
    """Success rate of each prompt."""
    found: dict[str, list[bool]] = {}
    for sample in samples:
        found.setdefault(sample["prompt_id"], []).append(sample["satisfied"])
    return {prompt: float(np.mean(hits)) for prompt, hits in found.items()}


def table(task: str, cells: Mapping[str, Any], reference: str = "full_cfg") -> str:
    """Markdown: one line a policy, best-of-n runs spread out."""
    samples = cells["samples"]
    curves = {name: best_of_curve(found) for name, found in samples.items() if parse_policy(name).attempts > 1}
    lines = [
        f"### {task}",
        "",
        f"| policy | success [95 %] | minus {reference} [95 %] | rows | "
        + " | ".join(f"{name} at these rows" for name in curves)
        + (" |" if curves else ""),
        "|---|---|---|---|" + "---|" * len(curves),
    ]
    for name, found in samples.items():
        row = cells["policies"][name]
        low, high = wilson(sum(sample["satisfied"] for sample in found), len(found))
        shown = ""
        if reference in samples:
            shown = paired_bootstrap(by_prompt(found), by_prompt(samples[reference])).signed
        beside = [matched(row["rows_per_sample"], curve) for curve in curves.values()]
        figures = [f"{row['success']:.3f} [{low:.3f}, {high:.3f}]", shown, f"{row['rows_per_sample']:.1f}"]
        figures += ["" if value is None else f"{value:.3f}" for value in beside]
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
    for name, (rows, success) in curves.items():
        points = ", ".join(f"{s:.3f} at {r:.1f}" for r, s in zip(rows, success, strict=True))
        lines += ["", f"{name}, n = 1, 2, ...: {points}"]
    return "\n".join(lines) + "\n"


def pooled(result: Mapping[str, Any]) -> dict[str, Any]:
    """All tasks as one, prompts named by task; policies that every task has."""
    tasks = result["tasks"]
    names = [
        name for name in next(iter(tasks.values()))["samples"] if all(name in t["samples"] for t in tasks.values())
    ]
    samples = {
        name: [
            {**sample, "prompt_id": f"{task}/{sample['prompt_id']}"}
            for task, cells in tasks.items()
            for sample in cells["samples"][name]
        ]
        for name in names
    }
    rows = {
        name: {
            "success": float(np.mean([sample["satisfied"] for sample in found])),
            "rows_per_sample": float(np.mean([sample["rows"] for sample in found])),
        }
        for name, found in samples.items()
    }
    return {"samples": samples, "policies": rows}


def report(result: Mapping[str, Any]) -> str:
    """Every task's table, then all prompts together."""
    parts = [table(task, cells) for task, cells in result["tasks"].items()]
    if len(result["tasks"]) > 1:
        parts.append(table("all prompts", pooled(result)))
    settings = json.dumps({name: result.get(name) for name in ("model", "model_hash", "seed", "versions")})
    return "\n".join([*parts, f"From {settings}", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report of a result file, or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("result", type=Path, help="of astargate evaluate --out")
    parser.add_argument("--out", type=Path, help="Markdown file")
    given = parser.parse_args(arguments)
    text = report(json.loads(given.result.read_text(encoding="utf-8")))
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
