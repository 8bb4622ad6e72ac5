"""Tables of a repair census: recovery by selector, anchor, population and family, agreement, length audit, lesions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gate_models.offline import repair_paper
from gate_models.offline.repair_census.arms import CONTROL, PAPER_SELECTORS
from gate_models.offline.repair_census.gains import (
    ANCHORS,
    FEWEST,
    Unit,
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

POPULATIONS: Final = ("collapse", "hopeless")
CELLS: Final = tuple((anchor, population) for anchor in ANCHORS for population in POPULATIONS)


def perplexity(units: Iterable[Unit], anchor: str, arm: tuple[str, int]) -> str:
    """Of the pooled tokens of an arm, by the shipped judge."""
    own = [found for unit in units if (found := arms_of(unit, anchor).get(arm)) is not None]
    tokens = sum(found["nll_tokens"] for found in own)
    return f"{math.exp(sum(found['nll'] for found in own) / tokens):.0f}" if tokens else "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def selector_table(units: Sequence[Unit], selectors: Sequence[str], count: int) -> str:
    """Success, gain and perplexity of every selector at both anchors, beside the paper's success and gain."""
    head = ["selector"]
    for anchor in ANCHORS:
        head += [f"{anchor} success", "gain [95 %]", "perplexity", "paper"]
    rows = []
    for name in (CONTROL, *selectors):
        row, paper = [name], repair_paper.RECOVERY.get(name, ("", ""))
        for index, anchor in enumerate(ANCHORS):
            success = mean(successes(units, anchor, arm_of(name, count)).values())
            won = "" if name == CONTROL else gain(units, anchor, arm_of(name, count))
            row += [success, won, perplexity(units, anchor, arm_of(name, count)), paper[index]]
        rows.append(row)
    return _table(head, rows)


def _of(units: Sequence[Unit], population: str) -> list[Unit]:
    return [unit for unit in units if unit["population"] == population]


def cell_table(units: Sequence[Unit], selectors: Sequence[str], count: int) -> str:
    """Gain over the control in every cell (anchor x population), the control's success above it, the paper's beside."""
    head = ["selector", *(_cell(units, *cell) for cell in CELLS)]
    rows = []
    for name in (CONTROL, *selectors):
        row = [name]
        for anchor, population in CELLS:
            own = _of(units, population)
            if name == CONTROL:
                cell, paper = mean(successes(own, anchor, (CONTROL, 0)).values()), _control(anchor, population)
            else:
                theirs = repair_paper.GAIN.get((anchor, population, count, name))
                cell, paper = gain(own, anchor, arm_of(name, count)), "" if theirs is None else f"{theirs:+.3f}"
            row.append(cell + (f" (paper {paper})" if paper else ""))
        rows.append(row)
    return _table(head, rows)


def _cell(units: Sequence[Unit], anchor: str, population: str) -> str:
    return f"{anchor}, {population} ({len(_of(units, population))} runs)"


def _control(anchor: str, population: str) -> str:
    found = repair_paper.CONTROL_BY_TYPE.get((anchor, population))
    return "" if found is None else f"{found:.3f}"


def certain_cells(units: Sequence[Unit], selectors: Sequence[str], counts: Sequence[int]) -> str:
    """In how many cells each selector's gain is above, and below, 0 with 95 % confidence."""
    parts = []
    for name in selectors:
        kinds = (0,) if name == "restart" else counts
        cells = [gained(_of(units, p), anchor, arm_of(name, k)) for anchor, p in CELLS for k in kinds]
        enough = [estimate for estimate, prompts in filter(None, cells) if prompts >= FEWEST]
        above, below = sum(e.low > 0 for e in enough), sum(e.high < 0 for e in enough)
        parts.append(f"{name} {above} of {len(enough)}" + (f" (below 0: {below})" if below else ""))
    return "Cells with an interval above 0, of those with one (the paper: 8 of 8 each): " + ", ".join(parts) + ".\n"


def contrast_table(units: Sequence[Unit], counts: Sequence[int]) -> str:
    """Committor minus commit confidence, and how often they pick the same position, in every cell."""
    one, other = "committor", "commit_confidence"
    rows = []
    for anchor, population in CELLS:
        own = _of(units, population)
        row = [_cell(units, anchor, population)]
        for count in counts:
            theirs = repair_paper.CONTRAST.get((anchor, population, count))
            row.append(gain(own, anchor, (one, count), (other, count)) + (f" (paper {theirs:+.3f})" if theirs else ""))
        rows.append([*row, agreement(own, one, other, (anchor,))])
    return _table(["cell", *(f"K={count}" for count in counts), "same position, K=1"], rows)


def family_table(units: Sequence[Unit], selectors: Sequence[str], count: int, anchor: str) -> str:
    """Gain over the control of every family and population; the mean is over the paper's selectors that were run."""
    rows = []
    meant = [name for name in PAPER_SELECTORS if name in selectors]
    for task in sorted({unit["task"] for unit in units}):
        for population in POPULATIONS:
            own = [unit for unit in _of(units, population) if unit["task"] == task]
            control = successes(own, anchor, (CONTROL, 0))
            if not control:
                continue
            gains = {name: gained(own, anchor, arm_of(name, count)) for name in selectors}
            points = [f"{found[0].value:+.2f}" if found else "-" for found in gains.values()]
            rows.append(
                [
                    f"{task}, {population}",
                    str(len(control)),
                    mean(control.values()),
                    *points,
                    shown(mean_gain(own, anchor, meant, count)),
                ]
            )
    return _table(["family", "prompts", CONTROL, *selectors, "mean of the paper's"], rows)


def families_gaining(units: Sequence[Unit], selectors: Sequence[str], count: int) -> str:
    """In how many families the mean over the paper's selectors is above the control."""
    meant = [name for name in PAPER_SELECTORS if name in selectors]
    parts = []
    for anchor in ANCHORS:
        tasks = sorted({unit["task"] for unit in units})
        gains = [mean_gain([u for u in units if u["task"] == task], anchor, meant, count) for task in tasks]
        means = [estimate.value for estimate, _ in filter(None, gains)]
        parts.append(f"{anchor} {sum(value > 0 for value in means)} of {len(means)}")
    return f"Families with a mean gain above 0: {', '.join(parts)} (the paper, pre: 12 of 12).\n"


def anchor_steps(units: Sequence[Unit]) -> str:
    """Where the anchors stand."""
    medians = ", ".join(f"{name} {np.median([unit['anchors'][name] for unit in units]):g}" for name in ANCHORS)
    kinds = ", ".join(f"{len(_of(units, population))} {population}" for population in POPULATIONS)
    return f"Intervened on: {kinds}. Median anchor steps: {medians}.\n"


def length_audit(units: Sequence[Unit]) -> str:
    """Masks left in any continuation, controls that the plain schedule reproduces, and mean lengths."""
    arms = [arm for unit in units for arm in unit.get("arms", ())]
    control = [arm for arm in arms if arm["arm"] == CONTROL]
    masks = sum(arm["masks_left"] for arm in arms)
    equal, compared = (sum(arm[name] for arm in control) for name in ("control_equal", "control_compared"))
    lengths = {
        name: mean(length for arm in arms if (arm["arm"] == CONTROL) is own for length in arm["length"])
        for name, own in (("control", True), ("reopened", False))
    }
    return (
        f"{masks} masks left in {sum(len(arm['success']) for arm in arms)} continuations; control bit-equal "
        f"{equal}/{compared}; mean tokens {lengths['control']} control, {lengths['reopened']} reopened.\n"
    )


def lesion_table(units: Sequence[Unit]) -> str:
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
            repair_paper.LESION[role, action, guided],
        ]
        for (role, action, guided), arms in sorted(groups.items())
    ]
    head = ["position", "action", "continuation", "runs", "restored", "present", "occurrences", "present if once"]
    return _table([*head, "the paper's four"], rows)


def report(header: Mapping[str, Any], units: Sequence[Unit]) -> str:
    """The whole report as Markdown."""
    settings = header["settings"]
    selectors, counts = settings["selectors"], settings["counts"]
    failed = [unit for unit in units if "arms" in unit]
    found = {name: sum(unit["population"] == name for unit in units) for name in (*POPULATIONS, "other", "succeeds")}
    parts = [
        "## Repair census",
        "",
        f"Model {header['model_hash']}, seed {settings['seed']}, {len(units)} recorded runs: "
        + ", ".join(f"{count} {name}" for name, count in found.items())
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
            f"The paper's pick the same position {repair_paper.AGREEMENT} of the time; here truncated_committor and "
            f"committor: {agree} states.\n",
        ]
        for anchor in ANCHORS:
            parts += [
                f"### Gain by family, {anchor} anchor, K = {top}\n",
                family_table(failed, selectors, top, anchor),
            ]
        parts += [families_gaining(failed, selectors, top), "### Length audit\n", length_audit(failed)]
    return "\n".join([*parts, "### Lesion and reopening of a keyword\n", lesion_table(units)])
