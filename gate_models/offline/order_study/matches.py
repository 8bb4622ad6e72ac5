"""Which commit order succeeds more often at the same cost: guidance-first policies beside confidence-order policies.

Both sides of a comparison cost at most the same number of rows. There are many comparisons, so some exclude 0 by
chance. Verdicts therefore come twice: each alone (its 95 % interval), and corrected together (sign tests over prompts,
Holm's procedure over all families and policies, level 5 %).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from gate_models.gates.sources import RECORDED
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.runs.markdown import table
from gate_models.policies.names import parse_policy
from gate_models.statistics.bootstrap import paired_bootstrap
from gate_models.statistics.intervals import Estimate

LEVEL: Final = 0.05
SPLITS: Final = 200
"""Random halves of a family's prompts behind `halves`."""
VERDICTS: Final = ("wins", "even", "loses")


@dataclass(frozen=True, slots=True)
class Match:
    """A guidance-first policy beside the best confidence-order policy that costs no more rows.

    Full CFG of several positions a step is left out of the comparison: it is cheap and meets its constraint with texts
    that repeat themselves, which the tables show. The rival is chosen by its success on these very prompts, which
    favours it: the difference is a lower reading.
    """

    point: Point
    rival: Point
    difference: Estimate

    @property
    def verdict(self) -> str:
        """Either "wins" or "loses" where the interval of the difference excludes 0, else "even"."""
        return "wins" if self.difference.low > 0 else "loses" if self.difference.high < 0 else "even"

    @property
    def p_value(self) -> float:
        """Two-sided sign test over the prompts on which the two differ; with one text a prompt McNemar's exact test."""
        rival = self.rival.by_prompt
        gaps = [value - rival[prompt] for prompt, value in self.point.by_prompt.items() if prompt in rival]
        better, worse = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
        return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0


def plain_policies(points: Sequence[Point]) -> list[Point]:
    """The confidence-order policies that guidance first is compared with.

    Not among them: several positions a guided step, and `recorded`, whose horizons no service knows beforehand.
    """
    parsed = ((point, parse_policy(point.policy).policy) for point in points if point.series.startswith("confidence"))
    return [point for point, policy in parsed if policy.guided_width == 1 and policy.gate.source != RECORDED]


def matches(points: Sequence[Point]) -> list[Match]:
    """Every guidance-first policy that some confidence-order policy can be compared with, by rows."""
    plain = plain_policies(points)
    return [match for point in points if point.is_first and (match := against(point, plain)) is not None]


def against(point: Point, rivals: Sequence[Point]) -> Match | None:
    """`point` beside the best of `rivals` that cost no more rows; None where every one does."""
    cheaper = _no_dearer(rivals, point)
    if not cheaper:
        return None
    best = max(cheaper, key=lambda rival: (rival.success.value, -rival.rows))
    return Match(point, best, paired_bootstrap(point.by_prompt, best.by_prompt))


def _no_dearer(plain: Sequence[Point], point: Point) -> list[Point]:
    return [rival for rival in plain if rival.rows <= point.rows + 1e-9]


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of several hypotheses are rejected together at `level` (Holm 1979): the family-wise error is kept."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


@dataclass(frozen=True, slots=True)
class FamilyVerdict:
    """A family's best guidance-first policy at matched rows, and how all its comparisons came out."""

    group: Group
    best: Match
    """Both sides chosen by their success on these very prompts."""
    halves: float
    """The difference where both are chosen on one half of the prompts and read off on the other: unselected."""
    counts: Mapping[str, int]
    """Comparisons by verdict, each alone."""
    corrected: Mapping[str, int]
    """The same after Holm's procedure over all families."""


def family_verdicts(groups: Mapping[Group, Sequence[Point]]) -> list[FamilyVerdict]:
    """One verdict for every group with a comparison."""
    pairs = {group: compared for group, points in groups.items() if (compared := matches(points))}
    flat = [match for compared in pairs.values() for match in compared]
    kept = iter(holm([match.p_value for match in flat]))
    verdicts = []
    for group, compared in pairs.items():
        corrected = [_corrected(match) if next(kept) else "even" for match in compared]
        verdicts.append(
            FamilyVerdict(
                group=group,
                best=max(compared, key=lambda match: (match.point.success.value, -match.point.rows)),
                halves=halves(groups[group]),
                counts={word: sum(match.verdict == word for match in compared) for word in VERDICTS},
                corrected={word: corrected.count(word) for word in VERDICTS},
            )
        )
    return verdicts


def _corrected(match: Match) -> str:
    return "wins" if match.difference.value > 0 else "loses"


def halves(points: Sequence[Point], splits: int = SPLITS) -> float:
    """Success of the best guidance-first policy less the best of confidence order at no more rows, chosen elsewhere.

    Each random half of the prompts chooses both, the other half reads their difference; mean over both ways and
    `splits` splits. Rows are those over all prompts.
    """
    plain = plain_policies(points)
    guided = [point for point in points if point.is_first and _no_dearer(plain, point)]
    prompts = sorted(set.intersection(*(set(point.by_prompt) for point in [*guided, *plain])))
    success = {id(p): np.array([p.by_prompt[prompt] for prompt in prompts]) for p in [*guided, *plain]}
    rng, read = np.random.default_rng(0), []

    def best(candidates: Sequence[Point], half: np.ndarray) -> Point:
        return max(candidates, key=lambda point: (success[id(point)][half].mean(), -point.rows))

    for _ in range(splits if len(prompts) > 1 else 0):
        order = rng.permutation(len(prompts))
        parts = order[: len(order) // 2], order[len(order) // 2 :]
        for chooses, reads in (parts, parts[::-1]):
            first = best(guided, chooses)
            rival = best(_no_dearer(plain, first), chooses)
            read.append(float((success[id(first)][reads] - success[id(rival)][reads]).mean()))
    return float(np.mean(read)) if read else 0.0


def family_table(groups: Mapping[Group, Sequence[Point]]) -> str:
    """Markdown: a family a line."""
    figures = ("rows", "success", "ppl")
    heads = ["family", "prompts", "best guidance first", *figures, "best confidence order, no more rows", *figures]
    heads += ["difference", "halves", "alone", "all policies: wins, even, loses", "after Holm"]
    return table(heads, map(_family_row, family_verdicts(groups)))


def _family_row(one: FamilyVerdict) -> list[str]:
    best = one.best
    return [
        one.group[0],
        str(best.point.prompts),
        *cells(best.point),
        *cells(best.rival),
        best.difference.signed,
        f"{one.halves:+.3f}",
        best.verdict,
        _counts(one.counts),
        _counts(one.corrected),
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(str(counts[word]) for word in VERDICTS)


def cells(point: Point) -> list[str]:
    """Policy, rows, success and perplexity, as cells of a table."""
    return [point.policy, f"{point.rows:.1f}", f"{point.success.value:.2f}", shown(point.perplexity)]


def shown(perplexity: float | None) -> str:
    """A perplexity as tables show it."""
    return "-" if perplexity is None else f"{perplexity:.0f}"


def note(groups: Mapping[Group, Sequence[Point]]) -> str:
    """How many comparisons there are, what chance alone would make of them, and what is left after correction."""
    verdicts = family_verdicts(groups)
    alone = {word: sum(one.counts[word] for one in verdicts) for word in VERDICTS}
    kept = {word: sum(one.corrected[word] for one in verdicts) for word in VERDICTS}
    count = sum(alone.values())
    unmatched = sum(point.is_first for points in groups.values() for point in points) - count
    apart = f" {unmatched} guidance-first points cost less than every rival and stand in none." if unmatched else ""
    return (
        f"{count} comparisons in {len(verdicts)} families.{apart} Alone, "
        f"{alone['wins']} win and {alone['loses']} lose; "
        f"were there no difference at all, about {count * LEVEL / 2:.1f} would do either by chance. After Holm's "
        f"procedure over all of them (exact sign tests over prompts) {kept['wins']} win and {kept['loses']} lose. The "
        "policies of a "
        "family share their prompts and many texts, so these are no independent tries. Both policies of a line were "
        "chosen on the prompts that it shows; *halves* is the difference when half of the prompts choose both and the "
        "other half reads it (no interval). A confidence-order policy that wins by choice alone makes guidance first "
        "lose too easily; *even* means that these prompts cannot tell, not that the two are equal."
    )
