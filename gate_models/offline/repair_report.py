"""Tables of a repair census: recovery by selector, anchor, population and family, agreement, length audit, lesions.

Gains are paired within a prompt (its seeds averaged) and their intervals bootstrap the prompts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gate_models.offline.inference import paired_bootstrap
from gate_models.offline.repair_arms import CONTROL

Unit = Mapping[str, Any]
PAPER: Final[Mapping[str, tuple[float, float]]] = {
    CONTROL: (0.23, 0.20),
    "committor": (0.39, 0.34),
    "truncated_committor": (0.41, 0.31),
    "leave_one_out": (0.40, 0.30),
    "guidance_disagreement": (0.37, 0.26),
    "commit_confidence": (0.38, 0.35),
}
"""Success of the paper's Table "Reopen recovery" (K = 3), pre and post anchor, for comparison."""
POPULATIONS: Final = ("collapse", "hopeless")
ANCHORS: Final = ("pre", "post")


def arms_of(unit: Unit, anchor: str) -> dict[tuple[str, int], Mapping[str, Any]]:
    """A unit's arms at an anchor, by selector and K (restart and the control: 0)."""
    return {(arm["arm"], arm["count"]): arm for arm in unit.get("arms", ()) if arm["anchor"] == anchor}


def successes(units: Iterable[Unit], anchor: str, arm: tuple[str, int]) -> dict[tuple[str, str], float]:
    """Success of an arm by (task, prompt), seeds averaged."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for unit in units:
        own = arms_of(unit, anchor).get(arm)
        if own is not None:
            found[unit["task"], unit["prompt"]].append(float(np.mean(own["success"])))
    return {prompt: float(np.mean(rates)) for prompt, rates in found.items()}


def gain(units: Sequence[Unit], anchor: str, arm: tuple[str, int], other: tuple[str, int] = (CONTROL, 0)) -> str:
    """Success of an arm minus another's, paired by prompt: mean [95 % interval]."""
    own, reference = successes(units, anchor, arm), successes(units, anchor, other)
    return paired_bootstrap(own, reference).signed if own.keys() & reference.keys() else "-"


def _mean(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{np.mean(listed):.3f}" if listed else "-"


def perplexity(units: Iterable[Unit], anchor: str, arm: tuple[str, int]) -> str:
    """Of the pooled tokens of an arm, by the shipped judge."""
    own = [found for unit in units if (found := arms_of(unit, anchor).get(arm)) is not None]
    tokens = sum(found["nll_tokens"] for found in own)
    return f"{math.exp(sum(found['nll'] for found in own) / tokens):.0f}" if tokens else "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def selector_table(units: Sequence[Unit], selectors: Sequence[str], count: int) -> str:
    """Success, gain and perplexity of every selector at both anchors, beside the paper's success."""
    head = ["selector"]
    for anchor in ANCHORS:
        head += [f"{anchor} success", "gain [95 %]", "perplexity", "paper"]
    rows = []
    for name in (CONTROL, *selectors):
        arm = (name, 0 if name in {CONTROL, "restart"} else count)
        row = [name]
        for index, anchor in enumerate(ANCHORS):
            paper = f"{PAPER[name][index]:.2f}" if name in PAPER else ""
            shown = "" if name == CONTROL else gain(units, anchor, arm)
            row += [_mean(successes(units, anchor, arm).values()), shown, perplexity(units, anchor, arm), paper]
        rows.append(row)
    return _table(head, rows)


def cell_table(units: Sequence[Unit], selectors: Sequence[str], counts: Sequence[int]) -> str:
    """Gain over the control in every cell (anchor x population x K)."""
    cells = [(anchor, population, count) for anchor in ANCHORS for population in POPULATIONS for count in counts]
    names = [name for name in selectors if name != "restart"]
    rows = []
    for anchor, population, count in cells:
        own = [unit for unit in units if unit["population"] == population]
        gains = [gain(own, anchor, (name, count)) for name in names]
        rows.append([f"{anchor}, {population}, K={count}", *gains])
    return _table(["cell", *names], rows)


def family_table(units: Sequence[Unit], selectors: Sequence[str], count: int) -> str:
    """Gain over the control by family, pre anchor."""
    names = [name for name in selectors if name != "restart"]
    rows = []
    for task in sorted({unit["task"] for unit in units}):
        own = [unit for unit in units if unit["task"] == task]
        control = _mean(successes(own, "pre", (CONTROL, 0)).values())
        rows.append([task, str(len(own)), control, *(gain(own, "pre", (name, count)) for name in names)])
    return _table(["family", "runs", "control", *names], rows)


def agreement(units: Sequence[Unit], one: str, other: str) -> str:
    """How often two selectors pick the same position at K = 1, over all anchored states."""
    same = [
        arms[one, 1]["positions"] == arms[other, 1]["positions"]
        for unit in units
        for arms in (arms_of(unit, anchor) for anchor in ANCHORS)
        if (one, 1) in arms and (other, 1) in arms
    ]
    return f"{np.mean(same):.2f} of {len(same)}" if same else "-"


def length_audit(units: Sequence[Unit]) -> str:
    """Masks left in any continuation, controls that the plain schedule reproduces, and mean lengths."""
    arms = [arm for unit in units for arm in unit.get("arms", ())]
    control = [arm for arm in arms if arm["arm"] == CONTROL]
    masks = sum(arm["masks_left"] for arm in arms)
    equal, compared = (sum(arm[name] for arm in control) for name in ("control_equal", "control_compared"))
    lengths = {
        name: _mean(length for arm in arms if (arm["arm"] == CONTROL) is own for length in arm["length"])
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
            _mean(arm["restored"] for arm in arms),
            _mean(arm["present"] for arm in arms),
            _mean(arm["occurrences"] for arm in arms),
            _mean(arm["present"] for arm in arms if arm["once"]),
        ]
        for (role, action, guided), arms in sorted(groups.items())
    ]
    return _table(
        ["position", "action", "continuation", "runs", "restored", "present", "occurrences", "present if once"], rows
    )


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
        pairs = (("committor", "commit_confidence"), ("truncated_committor", "committor"))
        agree = [f"{one} and {other}: {agreement(failed, one, other)} states" for one, other in pairs]
        parts += [
            f"### Recovery by selector, K = {top}\n",
            selector_table(failed, selectors, top),
            "### Gain in every cell\n",
            cell_table(failed, selectors, counts),
            f"### Gain by family, pre anchor, K = {top}\n",
            family_table(failed, selectors, top),
            "### Agreement at K = 1\n",
            "The same position is picked by " + "; ".join(agree) + ".\n",
            "### Length audit\n",
            length_audit(failed),
        ]
    return "\n".join([*parts, "### Lesion and reopening of a keyword\n", lesion_table(units)])
