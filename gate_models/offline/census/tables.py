"""The text of a census report: Markdown tables that name the population of every number, or plain JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gate_models.committor.crossfit import SPLITS
from gate_models.committor.fates import GUIDANCE_FATES, HANDOFF_FATES
from gate_models.offline.census.noninferiority import ENOUGH_PROMPTS, MARGIN, SENSITIVITY_MARGIN, Noninferiority
from gate_models.offline.census.records import Census
from gate_models.offline.census.report import TOLERANCES, Quartiles, SubtaskReport


def to_json(census: Census, reports: Sequence[SubtaskReport]) -> dict[str, Any]:
    """Manifest and reports as plain JSON types."""
    return {"manifest": dict(census.manifest), "subtasks": [_plain(found) for found in reports]}


def _plain(found: SubtaskReport) -> dict[str, Any]:
    plain, row = asdict(found), found.table
    if row is not None:
        margins = {f"{margin:g}": row.holds(margin) for margin in (MARGIN, SENSITIVITY_MARGIN)}
        plain["table"] |= {"retention": row.retention, "holds_at_margin": margins, "few_prompts": row.few}
    return plain


def to_markdown(census: Census, reports: Sequence[SubtaskReport], splits: int = SPLITS) -> str:
    """The tables, with the population of every number. `splits` is what `report` was given."""
    manifest, settings = census.manifest, census.settings
    head = (
        f"Census of {manifest['model']} ({manifest['model_hash']}), seed {manifest['seed']}, w = "
        f"{settings['weight']:g}, freeze grid {', '.join(f'{f:g}' for f in census.grid)}; "
        f"{settings['coupling']} cells.\n"
    )
    ratio = variance_ratio(census)
    if ratio is not None:
        head += f"Variance of V with {settings['coupling']} numbers: {ratio:.2f} of independent cells'.\n"
    return "\n".join(
        [
            head,
            _table_1(reports, splits),
            _fates(reports),
            _guidance_table(reports),
            _ensembles(reports),
            _curves(reports),
        ]
    )


def _table_1(reports: Sequence[SubtaskReport], splits: int) -> str:
    few = (
        f" (few): fewer than {ENOUGH_PROMPTS} prompts, of which the bootstrap's interval is too narrow; such a verdict "
        "does not count."
        if any(found.table is not None and found.table.few for found in reports)
        else ""
    )
    lines = [
        "## Freeze at a* against full CFG: noninferiority",
        "",
        f"Population: full census; censored prompts count with a difference of 0. Values cross-fitted over {splits} "
        f"half-splits; 95 % percentile bootstrap over prompts. Holds where the lower bound is above -{MARGIN:g} "
        f"(sensitivity: -{SENSITIVITY_MARGIN:g}). Survivors: prompts with a preterminal horizon, over the splits that "
        "select one (secondary). A row without survivors holds trivially." + few,
        "",
        f"| subtask | n | N | full CFG | freeze at a* | difference | 95 % | retention | a* = T | holds at {MARGIN:g} "
        f"| at {SENSITIVITY_MARGIN:g} | survivors | difference | 95 % | optimism |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for found in reports:
        row = found.table
        if row is None:
            lines.append(f"| {found.task} | {found.prompts} | {_counts(found)} |" + " - |" * 12)
            continue
        kept = row.survivor_difference
        survivors = "- | -" if kept is None else f"{kept.value:+.3f} | [{kept.low:+.3f}, {kept.high:+.3f}]"
        retention = "-" if row.retention is None else f"{row.retention:.2f}"
        lines.append(
            f"| {found.task} | {row.prompts} | {_counts(found)} | {row.full:.3f} | {row.handoff:.3f} "
            f"| {row.difference.value:+.3f} | [{row.difference.low:+.3f}, {row.difference.high:+.3f}] | {retention} "
            f"| {found.censored_share:.0%} | {_verdict(row, MARGIN)} | {_verdict(row, SENSITIVITY_MARGIN)} "
            f"| {row.survivors} | {survivors} | {row.optimism:+.3f} |"
        )
    if any(len(found.rollouts) > 1 for found in reports):
        lines += [
            "",
            "N differs between prompts of a subtask (in brackets: how many have each): the census is growing. With "
            "few rollouts a state passes q0 >= 0.9 less often, so fates and horizons of such a row are a mixture.",
        ]
    return "\n".join(lines) + "\n"


def _counts(found: SubtaskReport) -> str:
    """N, or each N with its number of prompts where they differ."""
    if len(found.rollouts) == 1:
        return str(next(iter(found.rollouts)))
    return ", ".join(f"{count} ({prompts})" for count, prompts in found.rollouts.items())


def _fates(reports: Sequence[SubtaskReport]) -> str:
    lines = [
        "## Handoff fates and horizons",
        "",
        "Counts of prompts (full census). a* / T: median [quartiles] over the handoff class and over all preterminal "
        "prompts, plug-in.",
        "",
        f"| subtask | {' | '.join(HANDOFF_FATES)} | a* handoff class | a* preterminal | rows / prompt | incomplete |",
        "|---" * (len(HANDOFF_FATES) + 5) + "|",
    ]
    for found in reports:
        counts = " | ".join(str(found.handoff_fates[fate]) for fate in HANDOFF_FATES)
        lines.append(
            f"| {found.task} | {counts} | {_quartiles(found.handoff_class)} | {_quartiles(found.preterminal)} "
            f"| {found.rows_per_prompt:.0f} | {found.incomplete} |"
        )
    collided = {points for found in reports for points in found.collided}
    if collided:
        merged = "; ".join(" and ".join(f"{f:g}" for f in points) for points in sorted(collided))
        lines += ["", f"Grid points that fall on one step where T is small, and are merged: {merged}."]
    return "\n".join(lines) + "\n"


def _guidance_table(reports: Sequence[SubtaskReport]) -> str:
    rows = [found for found in reports if found.guidance_fates is not None]
    if not rows:
        return ""
    lines = [
        "## Guidance fates (weight sweep, fresh runs)",
        "",
        f"| subtask | {' | '.join(GUIDANCE_FATES)} |",
        "|---" * (len(GUIDANCE_FATES) + 1) + "|",
    ]
    for found in rows:
        counts = found.guidance_fates or {}
        lines.append(f"| {found.task} | {' | '.join(str(counts[fate]) for fate in GUIDANCE_FATES)} |")
    return "\n".join(lines) + "\n"


def _curves(reports: Sequence[SubtaskReport]) -> str:
    lines = ["## Freeze curves (success, mean over the full census)", ""]
    for found in reports:
        arms = list(found.curve[0].rates)
        lines += [
            f"{found.task}",
            "",
            f"| f | committed | {' | '.join(arms)} |",
            "|---" * (len(arms) + 2) + "|",
        ]
        for point in found.curve:
            rates = " | ".join(f"{point.rates[arm]:.3f}" for arm in arms)
            lines.append(f"| {point.fraction:g} | {point.committed_fraction:.2f} | {rates} |")
        lines.append("")
    return "\n".join(lines)


def _ensembles(reports: Sequence[SubtaskReport]) -> str:
    rows = [(found.task, found.ensemble) for found in reports if found.ensemble is not None]
    if not rows:
        return ""
    lines = [
        "## Ensemble horizons (Definition 1, fresh prefixes)",
        "",
        "a* / T: median [quartiles] over all prompts with switch runs, censored ones at 1; among the grid points.",
        "",
        f"| subtask | {' | '.join(f'eps = {tolerance:g}' for tolerance in TOLERANCES)} |",
        "|---" * (len(TOLERANCES) + 1) + "|",
    ]
    for task, found in rows:
        lines.append(f"| {task} | {' | '.join(_quartiles(found.get(tolerance)) for tolerance in TOLERANCES)} |")
    return "\n".join(lines) + "\n"


def _quartiles(found: Quartiles | None) -> str:
    return "-" if found is None else f"{found.text} (n = {found.count})"


def _verdict(row: Noninferiority, margin: float) -> str:
    return ("yes" if row.holds(margin) else "no") + (" (few)" if row.few else "")


def variance_ratio(census: Census) -> float | None:
    """Var(V) of the census's coupled cells over the variance that independent cells of their rates would have.

    Pooled over every freeze state: below 1 the coupling helps, above it harms. None where cells are independent, or
    where no state has both arms and some spread. With antithetic numbers the mirrored pairs are the unit.
    """
    coupled = independent = 0.0
    for prompt in census.prompts:
        base = {cell.step: cell for cell in prompt.freeze(census.main_run, "base")}
        for guided in prompt.freeze(census.main_run, "guided"):
            other = base.get(guided.step)
            if other is None or guided.coupling == "independent" or other.count != guided.count:
                continue
            block = 2 if guided.coupling == "antithetic" else 1
            blocks = guided.count // block
            if blocks < 2:
                continue
            outcomes = np.stack([guided.outcomes, other.outcomes])[:, : blocks * block].astype(np.float64)
            means = outcomes.reshape(2, blocks, block).mean(-1)
            coupled += float((means[0] - means[1]).var(ddof=1)) / blocks
            independent += float(outcomes.var(axis=1, ddof=1).sum()) / (blocks * block)
    return coupled / independent if independent > 0 else None
