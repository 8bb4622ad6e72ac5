"""What one factor does to the policies of the study: canvas, guidance weight or temperature, moved one at a time.

Every setting is read on the prompts that all results of a family have. A family's settings then differ by the factor
alone. A factor cannot be moved in every family: each line says how many families it pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gate_models.offline.order_study.points import (
    DEFAULT_WEIGHT,
    Group,
    Point,
    StudySetting,
    Texts,
    on_prompts,
    points,
    prompts_in,
)
from gate_models.offline.order_study.pooled import FULL, Pooled, complete, pool, ratio
from gate_models.offline.runs.markdown import table
from gate_models.offline.scorers.fluency import Fluency

HOME: Final = "own canvas, w = 2, temperature 1"


@dataclass(frozen=True, slots=True)
class Factor:
    """A setting with its policies, pooled over the families that were decoded in it."""

    name: str
    families: tuple[str, ...]
    policies: Mapping[str, Pooled]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "setting": self.name,
            "families": list(self.families),
            "policies": [pooled.to_json() for pooled in self.policies.values()],
        }


def factors(main: Mapping[Group, Texts], moved: Mapping[Group, Texts], fluency: Fluency) -> list[Factor]:
    """Every setting of `moved`, and the families' own of `main` on the prompts of `moved`."""
    labelled: dict[str, dict[Group, list[Point]]] = {}
    for task in dict.fromkeys(task for task, _ in moved):
        changed = {setting: texts for (name, setting), texts in moved.items() if name == task}
        home = {setting: texts for (name, setting), texts in main.items() if name == task and not setting.without}
        shared = set.intersection(*map(prompts_in, changed.values()))
        for setting, texts in (home | changed).items():
            kept = on_prompts(texts, shared)
            if FULL not in kept or prompts_in(kept) != shared:
                continue
            measured = points(kept, fluency)
            for label in _labels(setting, set(home)):
                labelled.setdefault(label, {})[task, setting] = measured
    canvases = {f"T = {setting.steps[0]}" for _, setting in moved if _is_plain(setting)}
    return [
        _factor(label, labelled[label])
        for label in sorted(labelled, key=_place)
        if not label.startswith("T = ") or label in canvases
    ]


def _is_plain(setting: StudySetting) -> bool:
    """Whether only the canvas can have been moved."""
    return setting.weight == DEFAULT_WEIGHT and setting.temperature == 1.0 and len(setting.steps) == 1


def _labels(setting: StudySetting, home: set[StudySetting]) -> list[str]:
    """The lines that a setting belongs to: a family's own is also one of the canvases."""
    labels = [HOME] if setting in home else []
    if _is_plain(setting):
        labels.append(f"T = {setting.steps[0]}")
    if setting.weight != DEFAULT_WEIGHT:
        labels.append(f"w = {setting.weight:g}")
    if setting.temperature != 1.0:
        labels.append(f"temperature {setting.temperature:g}")
    return labels


def _place(label: str) -> tuple[int, float]:
    kinds = ("own", "T = ", "w = ", "temperature ")
    kind = next(number for number, start in enumerate(kinds) if label.startswith(start))
    return kind, 0.0 if kind == 0 else float(label.removeprefix(kinds[kind]))


def _factor(label: str, groups: Mapping[Group, Sequence[Point]]) -> Factor:
    """Pooled over the policies that every family of the setting has."""
    shared = set.intersection(*({point.policy for point in points} for points in groups.values()))
    families = complete(groups, sorted(shared))
    pooled = {one.policy: one for one in pool(list(families.values()), sorted(shared))}
    return Factor(label, tuple(task for task, _ in families), pooled)


def factor_table(settings: Sequence[Factor], policies: Sequence[str]) -> str:
    """Markdown: a setting a line; of each policy success, rows and perplexity over full CFG's, repeats."""
    rows = []
    for one in settings:
        prompts = next(iter(one.policies.values())).prompts
        cells = (_cell(one.policies.get(policy)) for policy in policies)
        rows.append([one.name, f"{len(one.families)}, {prompts}", *cells])
    return table(["setting", "families, prompts", *policies], rows)


def _cell(pooled: Pooled | None) -> str:
    if pooled is None:
        return "-"
    return f"{pooled.success.value:.2f}, {pooled.share:.0%}, {ratio(pooled.perplexity)}, {pooled.repeats:.2f}"
