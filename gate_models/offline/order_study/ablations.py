"""Guidance-first policies with a part of their order and without it, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gate_models.offline.order_study.matches import shown
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.order_study.pooled import perplexity_ratio, ratio, stratified
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
        own, other = self.whole.by_prompt, self.without.by_prompt
        return [own[prompt] - other[prompt] for prompt in own if prompt in other]

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


def ablations(found: Mapping[Group, Sequence[Point]]) -> list[Ablation]:
    """What `found` has with and without one part, by part and policy."""
    every = list(_pairs(found))
    policies = list(dict.fromkeys(one.whole.policy for one in every))
    return sorted(every, key=lambda one: (one.left_out, policies.index(one.whole.policy)))


def _pairs(found: Mapping[Group, Sequence[Point]]) -> Iterator[Ablation]:
    for (task, setting), own in found.items():
        for (other, free), others in found.items():
            if other != task or len(free.without) != 1 or replace(free, without=()) != setting:
                continue
            named = {point.policy: point for point in others}
            for point in own:
                if point.policy in named:
                    yield Ablation(task, free.without[0], point, named[point.policy])


def ablation_table(found: Sequence[Ablation]) -> str:
    """Markdown: a family a line, and above the families of a part and policy all of them, each weighing alike."""
    lines = [
        "| without | policy | task | with it: rows | success | ppl | repeats | without: rows | success | ppl | repeats "
        "| difference | ppl, with / without |",
        "|" + "---|" * 13,
    ]
    for left_out, policy in dict.fromkeys((one.left_out, one.whole.policy) for one in found):
        own = [one for one in found if (one.left_out, one.whole.policy) == (left_out, policy)]
        head = f"| {left_out} | {policy} |"
        if len(own) > 1:
            lines.append(f"{head} {_pooled(own)}")
        lines += [
            f"{head} {one.task} | {_cells(one.whole)} | {_cells(one.without)} | {one.difference.signed} "
            f"| {ratio(_perplexity([one]))} |"
            for one in own
        ]
    return "\n".join(lines)


def _cells(point: Point) -> str:
    return f"{point.rows:.1f} | {point.success.value:.2f} | {shown(point.perplexity)} | {point.repeats:.2f}"


def _pooled(own: Sequence[Ablation]) -> str:
    """Rows and perplexity of families have no mean that means much: success, repeats and the ratio alone."""
    difference = stratified([np.array(one.differences) for one in own]).signed
    sides = [
        f"- | {np.mean([point.success.value for point in side]):.3f} | - | {np.mean([p.repeats for p in side]):.2f}"
        for side in ([one.whole for one in own], [one.without for one in own])
    ]
    return f"{len(own)} families | {' | '.join(sides)} | {difference} | {ratio(_perplexity(own))} |"


def _perplexity(own: Sequence[Ablation]) -> float | None:
    return perplexity_ratio([(one.whole, one.without) for one in own])
