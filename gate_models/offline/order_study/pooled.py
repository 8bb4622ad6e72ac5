"""One figure a policy over all families: means in which every family weighs alike, whatever its number of prompts.

Intervals resample prompts within every family: they speak for other prompts of these families, not for other families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.order_study.matches import plain_policies
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.runs.markdown import table
from gate_models.statistics.bootstrap import REPLICATES
from gate_models.statistics.intervals import Estimate

FULL: Final = "full_cfg"
Families = Sequence[Mapping[str, Point]]
"""Points by policy, family by family."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """One policy over families."""

    policy: str
    families: int
    fallen_back: int
    """Families in which it is full CFG, since its gate has no setting there."""
    prompts: int
    success: Estimate
    loss: Estimate
    """Success of full CFG in confidence order less this policy's."""
    share: float
    """Rows over full CFG's, mean over families."""
    perplexity: float | None
    """Over full CFG's, geometric mean over families; None where a family has no text to judge."""
    repeats: float
    against: str | None = None
    """Guidance first: the confidence-order policy of the largest success whose share is no larger."""
    difference: Estimate | None = None
    """Success less that one's."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        content = {
            "policy": self.policy,
            "families": self.families,
            "fallen_back": self.fallen_back,
            "prompts": self.prompts,
            "success": self.success.rounded,
            "loss": self.loss.rounded,
            "share": round(self.share, 4),
            "perplexity_over_full_cfg": None if self.perplexity is None else round(self.perplexity, 3),
            "repeats": round(self.repeats, 3),
        }
        if self.difference is not None:
            content |= {"against": self.against, "difference": self.difference.rounded}
        return content


def stratified(families: Sequence[NDArray[np.float64]], *, seed: int = 0, replicates: int = REPLICATES) -> Estimate:
    """Mean over families of their means over prompts, each family alike; percentile interval, prompts resampled within
    families.
    """
    rng = np.random.default_rng(seed)
    means = [
        values[rng.integers(values.size, size=(replicates, values.size))].mean(1) if values.size > 1 else values
        for values in families
    ]
    low, high = np.quantile(sum(means) / len(means), [0.025, 0.975])
    return Estimate(float(np.mean([values.mean() for values in families])), float(low), float(high), "stratified")


def complete(groups: Mapping[Group, Sequence[Point]], policies: Sequence[str]) -> dict[Group, dict[str, Point]]:
    """The groups that have every one of `policies`, with these alone."""
    named = {group: {point.policy: point for point in points} for group, points in groups.items()}
    return {
        group: {policy: by_policy[policy] for policy in policies}
        for group, by_policy in named.items()
        if by_policy.keys() >= set(policies)
    }


def pool(families: Families, policies: Sequence[str]) -> list[Pooled]:
    """`policies` by rows. Every family needs each of them, and full CFG."""
    pooled = [_pooled(families, policy) for policy in policies] if families else []
    return sorted(pooled, key=lambda one: one.share)


def _pooled(families: Families, policy: str) -> Pooled:
    points = [family[policy] for family in families]
    against = _matched(families, policy)
    return Pooled(
        policy=policy,
        families=len(families),
        fallen_back=sum(point.falls_back for point in points),
        prompts=sum(point.prompts for point in points),
        success=stratified([_values(point) for point in points]),
        loss=_difference(families, FULL, policy),
        share=float(np.mean([point.share for point in points])),
        perplexity=perplexity_ratio([(family[policy], family[FULL]) for family in families]),
        repeats=float(np.mean([point.repeats for point in points])),
        against=against,
        difference=None if against is None else _difference(families, policy, against),
    )


def _values(point: Point) -> NDArray[np.float64]:
    return np.array(list(point.by_prompt.values()))


def perplexity_ratio(pairs: Sequence[tuple[Point, Point]]) -> float | None:
    """Perplexity of the first of each pair over the second's, geometric mean; None where one has no text to judge."""
    known = [a.perplexity / b.perplexity for a, b in pairs if a.perplexity is not None and b.perplexity is not None]
    return math.exp(float(np.mean(np.log(known)))) if len(known) == len(pairs) else None


def _difference(families: Families, one: str, other: str) -> Estimate:
    """Success of `one` less `other` on the same prompts."""
    return stratified(
        [
            np.array([family[one].by_prompt[p] - family[other].by_prompt[p] for p in _shared(family, one, other)])
            for family in families
        ]
    )


def _shared(family: Mapping[str, Point], one: str, other: str) -> list[str]:
    return [prompt for prompt in family[one].by_prompt if prompt in family[other].by_prompt]


def _matched(families: Families, policy: str) -> str | None:
    """The confidence-order policy that a guidance-first one is compared with; None where there is none."""
    if not any(family[policy].is_first for family in families):
        return None
    plain = [point.policy for point in plain_policies(list(families[0].values()))]
    known = [name for name in plain if name != policy and _share(families, name) <= _share(families, policy) + 1e-9]
    return max(known, key=lambda name: (_success(families, name), -_share(families, name)), default=None)


def _share(families: Families, policy: str) -> float:
    return float(np.mean([family[policy].share for family in families]))


def _success(families: Families, policy: str) -> float:
    return float(np.mean([_values(family[policy]).mean() for family in families]))


def pooled_table(pooled: Sequence[Pooled]) -> str:
    """Markdown, by rows."""
    heads = ["policy", "success", "95 %", "loss to full CFG", "rows, of full CFG", "ppl, x full CFG", "repeats"]
    return table([*heads, "best confidence order, no more rows", "difference"], map(_row, pooled))


def _row(one: Pooled) -> list[str]:
    return [
        one.policy + (f" ({one.fallen_back} fall back)" if one.fallen_back else ""),
        f"{one.success.value:.3f}",
        f"{one.success.low:.2f}-{one.success.high:.2f}",
        one.loss.signed,
        f"{one.share:.0%}",
        ratio(one.perplexity),
        f"{one.repeats:.2f}",
        "-" if one.difference is None else str(one.against),
        "-" if one.difference is None else one.difference.signed,
    ]


def ratio(perplexity: float | None) -> str:
    """A ratio of perplexities as tables show it."""
    return "-" if perplexity is None else f"{perplexity:.2f}"
