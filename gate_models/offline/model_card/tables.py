"""Tables of a model card that look across subtasks: success by guidance weight, and by the step where guidance ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gate_models.offline.runs import markdown
from gate_models.policies.names import at_weight
from gate_models.statistics.intervals import wilson

SUCCESS_BY_WEIGHT: Final[Mapping[str, Mapping[float, float]]] = {
    name: dict(zip((0.0, 1.0, 2.0, 4.0), values, strict=True))
    for name, values in {
        "commongen-k3": (0.69, 0.77, 0.84, 0.77),
        "commongen-k4": (0.53, 0.70, 0.74, 0.72),
        "commongen-k5": (0.32, 0.66, 0.62, 0.60),
        "commongen-k10": (0.38, 0.69, 0.73, 0.63),
        "ccg-length": (0.33, 0.79, 0.81, 0.57),
        "ccg-sentiment": (0.59, 0.65, 0.64, 0.58),
        "ccg-multi": (0.60, 0.84, 0.87, 0.79),
        "ifeval-kw-freq": (0.84, 0.98, 0.93, 0.84),
        "ifeval-letter-freq": (0.61, 0.69, 0.70, 0.67),
        "ifeval-capital-freq": (0.51, 0.71, 0.73, 0.69),
        "ifeval-no-comma": (0.49, 0.79, 0.80, 0.88),
        "collie-c07": (0.89, 0.90, 0.83, 0.72),
        "collie-c06a": (0.08, 0.14, 0.04, 0.00),
    }.items()
}
"""The paper's table "subtask-level success rate at every guidance weight" (n = 200, N = 24): LLaDA-8B, 64 tokens, 64
steps. Reports stand beside it for orientation; nothing here measured it.
"""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "CommonGen": ("commongen-k3", "commongen-k4", "commongen-k5", "commongen-k10"),
    "CCG": ("ccg-length", "ccg-sentiment", "ccg-multi"),
    "IFEval": ("ifeval-kw-freq", "ifeval-letter-freq", "ifeval-capital-freq", "ifeval-no-comma"),
    "COLLIE": ("collie-c07", "collie-c06a"),
    "WordNet": ("cognac-avoidance",),
}
"""The benchmark families and their subtasks."""

WEIGHTS: Final = (0.0, 1.0, 2.0, 4.0)
FRACTIONS: Final = (0.0, 0.1, 0.3, 0.6, 1.0)
FREEZE_WEIGHT: Final = 2.0

RowsByPolicy = Mapping[str, Mapping[str, Any]]
"""Rows of a result by policy."""


def cells_of(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows by task and policy; where several results have a cell, the one with the most texts."""
    largest: dict[str, dict[str, Any]] = {}
    for result in results:
        for task, cells in result["tasks"].items():
            for policy, row in cells["policies"].items():
                known = largest.setdefault(task, {}).get(policy)
                if known is None or row["samples"] > known["samples"]:
                    largest[task][policy] = row
    return largest


def policy_at(weight: float) -> str:
    """Name of full CFG at a guidance scale."""
    return at_weight("full_cfg", weight).name


def policy_frozen(fraction: float) -> str:
    """Name of the policy that guides up to a fraction of the steps."""
    if fraction == 0.0:
        return "base"
    return policy_at(FREEZE_WEIGHT) if fraction == 1.0 else at_weight(f"handoff:{fraction:g}", FREEZE_WEIGHT).name


def weight_table(cells: Mapping[str, RowsByPolicy]) -> str:
    """Success by guidance scale, the paper's figures in brackets; then how many subtasks reach the aims."""
    gains, best, rows = {}, {}, []
    for task, policies in cells.items():
        if not all(policy_at(weight) in policies for weight in WEIGHTS):
            continue
        measured = [policies[policy_at(weight)]["success"] for weight in WEIGHTS]
        best[task], gains[task] = max(measured[1:]), max(measured[1:]) - measured[0]
        paper = SUCCESS_BY_WEIGHT.get(task)
        shown = [
            f"{success:.2f}" + (f" ({paper[weight]:.2f})" if paper else "")
            for success, weight in zip(measured, WEIGHTS, strict=True)
        ]
        rows.append((task, *shown, f"{gains[task]:+.2f}"))
    compared = [task for task in gains if task in SUCCESS_BY_WEIGHT]
    parts = [
        "### Success by guidance weight, beside the paper's\n",
        "In brackets the paper's LLaDA-8B on 64 tokens: other prompts, other model; for orientation only.\n",
        markdown.table(("subtask", *(f"w = {weight:g}" for weight in WEIGHTS), "best - base"), rows),
        f"\nOf the paper's {len(compared)} subtasks, full CFG at its best weight reaches .6 on "
        f"{sum(best[task] >= 0.6 for task in compared)} and beats base by at least .10 on "
        f"{sum(gains[task] >= 0.1 for task in compared)}.",
    ]
    return "\n".join(parts) + "\n"


def freeze_table(cells: Mapping[str, RowsByPolicy]) -> str:
    """Success with guidance up to a fraction of the steps, pooled over each benchmark's subtasks (95 % Wilson)."""
    rows = []
    for group, tasks in GROUPS.items():
        present = [cells[task] for task in tasks if task in cells]
        if present and all(policy_frozen(f) in policies for policies in present for f in FRACTIONS):
            pooled = ([policies[policy_frozen(fraction)] for policies in present] for fraction in FRACTIONS)
            rows.append((group, *map(_pooled, pooled)))
    parts = [
        f"### Freeze curve at w = {FREEZE_WEIGHT:g}\n",
        "Guidance up to a fraction f of the steps, then base, one token a step; all texts of a benchmark pooled.\n",
        markdown.table(("benchmark", *(f"f = {fraction:g}" for fraction in FRACTIONS)), rows),
    ]
    return "\n".join(parts) + "\n"


def _pooled(rows: Sequence[Mapping[str, Any]]) -> str:
    """Success over the texts of several subtasks, with its interval."""
    count = sum(row["samples"] for row in rows)
    successes = round(sum(row["success"] * row["samples"] for row in rows))
    low, high = wilson(successes, count)
    return f"{successes / count:.2f} ({low:.2f}-{high:.2f})"
