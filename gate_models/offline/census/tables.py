"""The text of a census report: Markdown tables that name the population of every number, or plain JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from gate_models.committor.crossfit import SPLITS
from gate_models.committor.fates import GUIDANCE_FATES, HANDOFF_FATES
from gate_models.offline.census.noninferiority import ENOUGH_PROMPTS, MARGIN, SENSITIVITY_MARGIN, Noninferiority
from gate_models.offline.census.records import Census
from gate_models.offline.census.report import TOLERANCES, Quartiles, SubtaskReport
from gate_models.offline.runs import markdown


def to_json(census: Census, reports: Sequence[SubtaskReport]) -> dict[str, Any]:
    """Manifest and reports as plain JSON types."""
    return {"manifest": dict(census.manifest), "subtasks": [_plain(subtask) for subtask in reports]}


def _plain(subtask: SubtaskReport) -> dict[str, Any]:
    plain, row = asdict(subtask), subtask.table
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


TABLE_1_HEADS: Final = (
    *("subtask", "n", "N", "full CFG", "freeze at a*", "difference", "95 %", "retention", "a* = T"),
    *(f"holds at {MARGIN:g}", f"at {SENSITIVITY_MARGIN:g}", "survivors", "difference", "95 %", "optimism"),
)


def _table_1(reports: Sequence[SubtaskReport], splits: int) -> str:
    few = (
        f" (few): fewer than {ENOUGH_PROMPTS} prompts; the bootstrap's interval is then too narrow, and the verdict "
        "does not count."
        if any(subtask.table is not None and subtask.table.few for subtask in reports)
        else ""
    )
    parts = [
        "## Freeze at a* against full CFG: noninferiority",
        "",
        f"Population: full census; censored prompts count with a difference of 0. Values cross-fitted over {splits} "
        f"half-splits; 95 % percentile bootstrap over prompts. Holds where the lower bound is above -{MARGIN:g} "
        f"(sensitivity: -{SENSITIVITY_MARGIN:g}). Survivors: prompts with a preterminal horizon, over the splits that "
        "select one (secondary). A row without survivors holds trivially." + few,
        "",
        markdown.table(TABLE_1_HEADS, [_table_1_row(subtask) for subtask in reports]),
    ]
    if any(len(subtask.rollouts) > 1 for subtask in reports):
        parts += [
            "",
            "N differs between prompts of a subtask (in brackets: how many have each): the census is growing. With "
            "few rollouts a state passes q0 >= 0.9 less often, so fates and horizons of such a row are a mixture.",
        ]
    return "\n".join(parts) + "\n"


def _table_1_row(subtask: SubtaskReport) -> tuple[str, ...]:
    row = subtask.table
    if row is None:
        return (subtask.task, str(subtask.prompts), _counts(subtask), *("-" for _ in TABLE_1_HEADS[3:]))
    survivors = row.survivor_difference
    return (
        subtask.task,
        str(row.prompts),
        _counts(subtask),
        f"{row.full:.3f}",
        f"{row.handoff:.3f}",
        f"{row.difference.value:+.3f}",
        f"[{row.difference.low:+.3f}, {row.difference.high:+.3f}]",
        "-" if row.retention is None else f"{row.retention:.2f}",
        f"{subtask.censored_share:.0%}",
        _verdict(row, MARGIN),
        _verdict(row, SENSITIVITY_MARGIN),
        str(row.survivors),
        "-" if survivors is None else f"{survivors.value:+.3f}",
        "-" if survivors is None else f"[{survivors.low:+.3f}, {survivors.high:+.3f}]",
        f"{row.optimism:+.3f}",
    )


def _counts(subtask: SubtaskReport) -> str:
    """N, or each N with its number of prompts where they differ."""
    if len(subtask.rollouts) == 1:
        return str(next(iter(subtask.rollouts)))
    return ", ".join(f"{count} ({prompts})" for count, prompts in subtask.rollouts.items())


def _fates(reports: Sequence[SubtaskReport]) -> str:
    heads = ("subtask", *HANDOFF_FATES, "a* handoff class", "a* preterminal", "rows / prompt", "incomplete")
    rows = [
        (
            subtask.task,
            *(str(subtask.handoff_fates[fate]) for fate in HANDOFF_FATES),
            _quartiles(subtask.handoff_class),
            _quartiles(subtask.preterminal),
            f"{subtask.rows_per_prompt:.0f}",
            str(subtask.incomplete),
        )
        for subtask in reports
    ]
    parts = [
        "## Handoff fates and horizons",
        "",
        "Counts of prompts (full census). a* / T: median [quartiles] over the handoff class and over all preterminal "
        "prompts, plug-in.",
        "",
        markdown.table(heads, rows),
    ]
    collided = {points for subtask in reports for points in subtask.collided}
    if collided:
        merged = "; ".join(" and ".join(f"{f:g}" for f in points) for points in sorted(collided))
        parts += ["", f"Grid points that fall on one step where T is small, and are merged: {merged}."]
    return "\n".join(parts) + "\n"


def _guidance_table(reports: Sequence[SubtaskReport]) -> str:
    rows = [
        (subtask.task, *(str(subtask.guidance_fates[fate]) for fate in GUIDANCE_FATES))
        for subtask in reports
        if subtask.guidance_fates is not None
    ]
    if not rows:
        return ""
    table = markdown.table(("subtask", *GUIDANCE_FATES), rows)
    return f"## Guidance fates (weight sweep, fresh runs)\n\n{table}\n"


def _curves(reports: Sequence[SubtaskReport]) -> str:
    parts = ["## Freeze curves (success, mean over the full census)", ""]
    for subtask in reports:
        arms = list(subtask.curve[0].rates)
        rows = [
            (f"{point.fraction:g}", f"{point.committed_fraction:.2f}", *(f"{point.rates[arm]:.3f}" for arm in arms))
            for point in subtask.curve
        ]
        parts += [subtask.task, "", markdown.table(("f", "committed", *arms), rows), ""]
    return "\n".join(parts)


def _ensembles(reports: Sequence[SubtaskReport]) -> str:
    rows = [
        (subtask.task, *(_quartiles(subtask.ensemble.get(tolerance)) for tolerance in TOLERANCES))
        for subtask in reports
        if subtask.ensemble is not None
    ]
    if not rows:
        return ""
    parts = [
        "## Ensemble horizons (Definition 1, fresh prefixes)",
        "",
        "a* / T: median [quartiles] over all prompts with switch runs, censored ones at 1; among the grid points.",
        "",
        markdown.table(("subtask", *(f"eps = {tolerance:g}" for tolerance in TOLERANCES)), rows),
    ]
    return "\n".join(parts) + "\n"


def _quartiles(quartiles: Quartiles | None) -> str:
    return "-" if quartiles is None else f"{quartiles.text} (n = {quartiles.count})"


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
