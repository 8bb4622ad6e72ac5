"""The report of a repair census: what each selector recovers, by anchor, population and family, beside the paper."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gate_models.offline.repair_census.arms import CONTROL
from gate_models.offline.repair_census.gains import (
    ANCHORS,
    FEWEST,
    UnitEntry,
    agreement,
    arm_of,
    arms_of,
    gain,
    gained,
    mean,
    mean_gain,
    shown,
    successes,
)
from gate_models.offline.repair_census.settings import PAPER_SELECTORS
from gate_models.offline.runs import markdown

POPULATIONS: Final = ("collapse", "hopeless")
CELLS: Final = tuple((anchor, population) for anchor in ANCHORS for population in POPULATIONS)

# What the paper measured of reopening (LLaDA-8B, 396 prompts, 12 subtasks): our tables show it beside ours.

PAPER_RECOVERY: Final[Mapping[str, tuple[str, str]]] = {
    "control": ("0.23", "0.20"),
    "committor": ("0.39 (+0.16)", "0.34 (+0.14)"),
    "truncated_committor": ("0.41 (+0.18)", "0.31 (+0.11)"),
    "leave_one_out": ("0.40 (+0.17)", "0.30 (+0.10)"),
    "guidance_disagreement": ("0.37 (+0.14)", "0.26 (+0.07)"),
    "commit_confidence": ("0.38 (+0.15)", "0.35 (+0.16)"),
}
"""Success and gain at the pre and at the post anchor (Table "Reopen recovery", K = 3)."""
PAPER_CONTROL_BY_TYPE: Final[Mapping[tuple[str, str], float]] = {("pre", "collapse"): 0.369, ("pre", "hopeless"): 0.091}
"""Success of the control by (anchor, population) (Appendix "Repair by Reopening", Finding 1)."""
PAPER_GAIN: Final[Mapping[tuple[str, str, int, str], float]] = {
    ("pre", "collapse", 3, "committor"): 0.176,
    ("pre", "hopeless", 3, "committor"): 0.152,
    ("post", "collapse", 3, "committor"): 0.170,
    ("pre", "collapse", 3, "guidance_disagreement"): 0.219,
}
"""Gain over the control by (anchor, population, K, selector) (Findings 1 and 2)."""
PAPER_CONTRAST: Final[Mapping[tuple[str, str, int], float]] = {
    ("post", "collapse", 3): -0.056,
    ("post", "hopeless", 1): 0.036,
}
"""Committor minus commit confidence in the two cells, of eight, where the interval leaves out 0 (Finding 2)."""
PAPER_AGREEMENT: Final = "0.14 to 0.36"
"""How often committor and commit confidence pick the same position at K = 1 (Finding 2)."""
PAPER_LESION: Final[Mapping[tuple[str, str, bool], str]] = {
    ("keyword", "lesion", True): "0.00, 0.96, 1.47, 0.94",
    ("keyword", "lesion", False): "0.00, 0.92, 1.46, 0.88",
    ("keyword", "reopen", True): "0.71, 0.98, -, -",
    ("keyword", "reopen", False): "0.73, 0.97, -, -",
    ("control", "lesion", True): "-, 1.00, -, -",
    ("control", "lesion", False): "-, 1.00, -, -",
    ("control", "reopen", True): "-, 1.00, -, -",
    ("control", "reopen", False): "-, 1.00, -, -",
}
"""Restored, present, occurrences, present if once (Appendix "Commitment Is Not Carried by a Fixed Token Position")."""


def perplexity(units: Iterable[UnitEntry], anchor: str, arm: tuple[str, int]) -> str:
    """Of the pooled tokens of an arm, by the shipped judge."""
    measured = [one for unit in units if (one := arms_of(unit, anchor).get(arm)) is not None]
    tokens = sum(one["nll_tokens"] for one in measured)
    return f"{math.exp(sum(one['nll'] for one in measured) / tokens):.0f}" if tokens else "-"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table and the end of its last line: parts of the report stand a blank line apart."""
    return markdown.table(heads, rows) + "\n"


def selector_table(units: Sequence[UnitEntry], selectors: Sequence[str], count: int) -> str:
    """Success, gain and perplexity of every selector at both anchors, beside the paper's success and gain."""
    head = ["selector"]
    for anchor in ANCHORS:
        head += [f"{anchor} success", "gain [95 %]", "perplexity", "paper"]
    rows = []
    for name in (CONTROL, *selectors):
        row, paper = [name], PAPER_RECOVERY.get(name, ("", ""))
        for index, anchor in enumerate(ANCHORS):
            success = mean(successes(units, anchor, arm_of(name, count)).values())
            won = "" if name == CONTROL else gain(units, anchor, arm_of(name, count))
            row += [success, won, perplexity(units, anchor, arm_of(name, count)), paper[index]]
        rows.append(row)
    return _table(head, rows)


def _of(units: Sequence[UnitEntry], population: str) -> list[UnitEntry]:
    return [unit for unit in units if unit["population"] == population]


def cell_table(units: Sequence[UnitEntry], selectors: Sequence[str], count: int) -> str:
    """Gain over the control in every cell (anchor x population), the control's success above it, the paper's beside."""
    head = ["selector", *(_cell(units, *cell) for cell in CELLS)]
    rows = []
    for name in (CONTROL, *selectors):
        row = [name]
        for anchor, population in CELLS:
            failed = _of(units, population)
            if name == CONTROL:
                cell, paper = mean(successes(failed, anchor, (CONTROL, 0)).values()), _control(anchor, population)
            else:
                theirs = PAPER_GAIN.get((anchor, population, count, name))
                cell, paper = gain(failed, anchor, arm_of(name, count)), "" if theirs is None else f"{theirs:+.3f}"
            row.append(cell + (f" (paper {paper})" if paper else ""))
        rows.append(row)
    return _table(head, rows)


def _cell(units: Sequence[UnitEntry], anchor: str, population: str) -> str:
    return f"{anchor}, {population} ({len(_of(units, population))} runs)"


def _control(anchor: str, population: str) -> str:
    rate = PAPER_CONTROL_BY_TYPE.get((anchor, population))
    return "" if rate is None else f"{rate:.3f}"


def certain_cells(units: Sequence[UnitEntry], selectors: Sequence[str], counts: Sequence[int]) -> str:
    """In how many cells each selector's gain is above, and below, 0 with 95 % confidence."""
    parts = []
    for name in selectors:
        kinds = (0,) if name == "restart" else counts
        cells = [gained(_of(units, p), anchor, arm_of(name, k)) for anchor, p in CELLS for k in kinds]
        enough = [estimate for estimate, prompts in filter(None, cells) if prompts >= FEWEST]
        above, below = sum(e.low > 0 for e in enough), sum(e.high < 0 for e in enough)
        parts.append(f"{name} {above} of {len(enough)}" + (f" (below 0: {below})" if below else ""))
    return "Cells with an interval above 0, of those with one (the paper: 8 of 8 each): " + ", ".join(parts) + ".\n"


def contrast_table(units: Sequence[UnitEntry], counts: Sequence[int]) -> str:
    """Committor minus commit confidence, and how often they pick the same position, in every cell."""
    one, other = "committor", "commit_confidence"
    rows = []
    for anchor, population in CELLS:
        failed = _of(units, population)
        row = [_cell(units, anchor, population)]
        for count in counts:
            theirs = PAPER_CONTRAST.get((anchor, population, count))
            row.append(
                gain(failed, anchor, (one, count), (other, count)) + (f" (paper {theirs:+.3f})" if theirs else "")
            )
        rows.append([*row, agreement(failed, one, other, (anchor,))])
    return _table(["cell", *(f"K={count}" for count in counts), "same position, K=1"], rows)


def family_table(units: Sequence[UnitEntry], selectors: Sequence[str], count: int, anchor: str) -> str:
    """Gain over the control of every family and population; the mean is over the paper's selectors that were run."""
    rows = []
    meant = [name for name in PAPER_SELECTORS if name in selectors]
    for task in sorted({unit["task"] for unit in units}):
        for population in POPULATIONS:
            failed = [unit for unit in _of(units, population) if unit["task"] == task]
            control = successes(failed, anchor, (CONTROL, 0))
            if not control:
                continue
            gains = {name: gained(failed, anchor, arm_of(name, count)) for name in selectors}
            points = [f"{one[0].value:+.2f}" if one else "-" for one in gains.values()]
            rows.append(
                [
                    f"{task}, {population}",
                    str(len(control)),
                    mean(control.values()),
                    *points,
                    shown(mean_gain(failed, anchor, meant, count)),
                ]
            )
    return _table(["family", "prompts", CONTROL, *selectors, "mean of the paper's"], rows)


def families_gaining(units: Sequence[UnitEntry], selectors: Sequence[str], count: int) -> str:
    """In how many families the mean over the paper's selectors is above the control."""
    meant = [name for name in PAPER_SELECTORS if name in selectors]
    parts = []
    for anchor in ANCHORS:
        tasks = sorted({unit["task"] for unit in units})
        gains = [mean_gain([u for u in units if u["task"] == task], anchor, meant, count) for task in tasks]
        means = [estimate.value for estimate, _ in filter(None, gains)]
        parts.append(f"{anchor} {sum(value > 0 for value in means)} of {len(means)}")
    return f"Families with a mean gain above 0: {', '.join(parts)} (the paper, pre: 12 of 12).\n"


def anchor_steps(units: Sequence[UnitEntry]) -> str:
    """Where the anchors stand."""
    medians = ", ".join(f"{name} {np.median([unit['anchors'][name] for unit in units]):g}" for name in ANCHORS)
    kinds = ", ".join(f"{len(_of(units, population))} {population}" for population in POPULATIONS)
    return f"Intervened on: {kinds}. Median anchor steps: {medians}.\n"


def length_audit(units: Sequence[UnitEntry]) -> str:
    """Masks left in any continuation, controls that the plain schedule reproduces, and mean lengths."""
    arms = [arm for unit in units for arm in unit.get("arms", ())]
    control = [arm for arm in arms if arm["arm"] == CONTROL]
    masks = sum(arm["masks_left"] for arm in arms)
    equal, compared = (sum(arm[name] for arm in control) for name in ("control_equal", "control_compared"))
    lengths = {
        name: mean(length for arm in arms if (arm["arm"] == CONTROL) is is_control for length in arm["length"])
        for name, is_control in (("control", True), ("reopened", False))
    }
    return (
        f"{masks} masks left in {sum(len(arm['success']) for arm in arms)} continuations; control bit-equal "
        f"{equal}/{compared}; mean tokens {lengths['control']} control, {lengths['reopened']} reopened.\n"
    )


def lesion_table(units: Sequence[UnitEntry]) -> str:
    """Keyword restored in place and present anywhere, by action and continuation."""
    groups: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for unit in units:
        for arm in unit.get("lesion", ()):
            groups[arm["role"], arm["action"], arm["guided"]].append(arm)
    rows = [
        [
            role,
            action,
            "guided" if guided else "base",
            str(len(arms)),
            mean(arm["restored"] for arm in arms),
            mean(arm["present"] for arm in arms),
            mean(arm["occurrences"] for arm in arms),
            mean(arm["present"] for arm in arms if arm["once"]),
            PAPER_LESION[role, action, guided],
        ]
        for (role, action, guided), arms in sorted(groups.items())
    ]
    head = ["position", "action", "continuation", "runs", "restored", "present", "occurrences", "present if once"]
    return _table([*head, "the paper's four"], rows)


def report(header: Mapping[str, Any], units: Sequence[UnitEntry]) -> str:
    """The whole report as Markdown."""
    settings = header["settings"]
    selectors, counts = settings["selectors"], settings["counts"]
    failed = [unit for unit in units if "arms" in unit]
    runs = {name: sum(unit["population"] == name for unit in units) for name in (*POPULATIONS, "other", "succeeds")}
    parts = [
        "## Repair census",
        "",
        f"Model {header['model_hash']}, seed {settings['seed']}, {len(units)} recorded runs: "
        + ", ".join(f"{count} {name}" for name, count in runs.items())
        + f"; {sum(unit['rows'] for unit in units)} forward evaluations.",
        "",
    ]
    if failed:
        top = max(counts)
        agree = agreement(failed, "truncated_committor", "committor")
        parts += [
            anchor_steps(failed),
            f"### Recovery by selector, K = {top}\n",
            selector_table(failed, selectors, top),
        ]
        for count in counts:
            parts += [f"### Gain in every cell, K = {count}\n", cell_table(failed, selectors, count)]
        parts += [
            certain_cells(failed, selectors, counts),
            "### Committor minus commit confidence\n",
            contrast_table(failed, counts),
            f"The paper's pick the same position {PAPER_AGREEMENT} of the time; here truncated_committor and "
            f"committor: {agree} states.\n",
        ]
        for anchor in ANCHORS:
            parts += [
                f"### Gain by family, {anchor} anchor, K = {top}\n",
                family_table(failed, selectors, top, anchor),
            ]
        parts += [families_gaining(failed, selectors, top), "### Length audit\n", length_audit(failed)]
    return "\n".join([*parts, "### Lesion and reopening of a keyword\n", lesion_table(units)])
