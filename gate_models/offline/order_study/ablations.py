"""What a part of the guidance-first commit order is worth: policies with it and without it, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gate_models.offline.order_study.matches import shown
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.order_study.pooled import perplexity_ratio, ratio, stratified
from gate_models.offline.runs.markdown import table
from gate_models.statistics.bootstrap import paired_bootstrap
from gate_models.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class Ablation:
    """One policy of one task."""

    task: str
    left_out: str
    """What `astargate evaluate --without` named."""
    whole: Point
    without: Point

    @property
    def differences(self) -> list[float]:
        """Success with the part less that without it, of each prompt that both have."""
        whole, without = self.whole.by_prompt, self.without.by_prompt
        return [whole[prompt] - without[prompt] for prompt in whole if prompt in without]

    @property
    def difference(self) -> Estimate:
        """Their mean."""
        return paired_bootstrap(self.whole.by_prompt, self.without.by_prompt)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "task": self.task,
            "without": self.left_out,
            "whole": self.whole.to_json(),
            "ablated": self.without.to_json(),
            "difference": self.difference.rounded,
        }


def ablations(groups: Mapping[Group, Sequence[Point]]) -> list[Ablation]:
    """The policies that `groups` hold with and without one part, by part and policy."""
    pairs = list(_pairs(groups))
    policies = list(dict.fromkeys(one.whole.policy for one in pairs))
    return sorted(pairs, key=lambda one: (one.left_out, policies.index(one.whole.policy)))


def _pairs(groups: Mapping[Group, Sequence[Point]]) -> Iterator[Ablation]:
    for (task, setting), whole in groups.items():
        for (other_task, ablated), without in groups.items():
            if other_task != task or len(ablated.without) != 1 or replace(ablated, without=()) != setting:
                continue
            by_policy = {point.policy: point for point in without}
            for point in whole:
                if point.policy in by_policy:
                    yield Ablation(task, ablated.without[0], point, by_policy[point.policy])


HEADS: Final = (
    "without",
    "policy",
    "task",
    "with it: rows",
    *("success", "ppl", "repeats"),
    "without: rows",
    *("success", "ppl", "repeats"),
    "difference",
    "ppl, with / without",
)


def ablation_table(measured: Sequence[Ablation]) -> str:
    """Markdown: a family a line, and above the families of a part and policy all of them, each weighing alike."""
    rows = []
    for left_out, policy in dict.fromkeys((one.left_out, one.whole.policy) for one in measured):
        families = [one for one in measured if (one.left_out, one.whole.policy) == (left_out, policy)]
        if len(families) > 1:
            rows.append([left_out, policy, *_pooled(families)])
        rows += [[left_out, policy, *_row(one)] for one in families]
    return table(HEADS, rows)


def _row(one: Ablation) -> list[str]:
    return [one.task, *_cells(one.whole), *_cells(one.without), one.difference.signed, ratio(_perplexity([one]))]


def _cells(point: Point) -> list[str]:
    return [f"{point.rows:.1f}", f"{point.success.value:.2f}", shown(point.perplexity), f"{point.repeats:.2f}"]


def _pooled(families: Sequence[Ablation]) -> list[str]:
    """Rows and perplexity of families have no mean that means much: success, repeats and the ratio alone."""
    difference = stratified([np.array(one.differences) for one in families]).signed
    cells = [f"{len(families)} families"]
    for points in ([one.whole for one in families], [one.without for one in families]):
        success, repeats = np.mean([p.success.value for p in points]), np.mean([p.repeats for p in points])
        cells += ["-", f"{success:.3f}", "-", f"{repeats:.2f}"]
    return [*cells, difference, ratio(_perplexity(families))]


def _perplexity(measured: Sequence[Ablation]) -> float | None:
    return perplexity_ratio([(one.whole, one.without) for one in measured])
