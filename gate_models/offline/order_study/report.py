"""The commit order study as Markdown and as numbers: what `astargate order-study report` writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gate_models.gates.learned.audit_report import AuditReport
from gate_models.gates.sources import RECORDED
from gate_models.offline.order_study.ablations import Ablation, ablation_table
from gate_models.offline.order_study.factors import Factor, factor_table
from gate_models.offline.order_study.learned_gates import (
    SERVED,
    Paired,
    audit_match_table,
    audit_matches,
    gates_table,
    is_recorded,
    paired,
    paired_table,
    source_of,
    with_gates,
)
from gate_models.offline.order_study.matches import Match, cells, family_table, family_verdicts, matches, note, shown
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.order_study.pooled import FULL, Pooled, complete, pool, pooled_table
from gate_models.offline.order_study.switch_curve import Move, switch_table
from gate_models.offline.runs.markdown import table

Groups = Mapping[Group, Sequence[Point]]


def group_table(points: Sequence[Point]) -> str:
    """All policies of one group by rows."""
    heads = ["policy", "success", "95 %", "loss to full CFG", "rows", "ppl", "repeats", "words", "handoff"]
    return table(heads, map(_point_row, points))


def _point_row(point: Point) -> list[str]:
    return [
        point.policy + (" (falls back)" if point.falls_back else ""),
        f"{point.success.value:.3f}",
        f"{point.success.low:.2f}-{point.success.high:.2f}",
        "-" if point.loss is None else point.loss.signed,
        f"{point.rows:.1f}",
        shown(point.perplexity),
        f"{point.repeats:.2f}",
        f"{point.words:.1f}",
        "-" if point.handoff is None else f"{point.handoff:.2f}",
    ]


def matched_table(groups: Groups) -> str:
    """Every guidance-first policy beside the best confidence-order policy at no more rows."""
    figures = ("rows", "success", "ppl")
    heads = ["task", "guidance first", *figures, "confidence order, no more rows", *figures, "difference", "verdict"]
    return table(
        heads,
        (
            [task, *cells(match.point), *cells(match.rival), match.difference.signed, match.verdict]
            for (task, _), points in groups.items()
            for match in matches(points)
        ),
    )


@dataclass(frozen=True, slots=True)
class OrderStudy:
    """Everything that a report shows."""

    groups: Groups
    common: Mapping[str, Any]
    commands: tuple[str, ...]
    pooled: tuple[str, ...]
    """Policies of the pooled table."""
    factors: Sequence[Factor] = ()
    factor_policies: tuple[str, ...] = ()
    moves: Sequence[Move] = ()
    ablations: Sequence[Ablation] = ()
    horizons: Groups = field(default_factory=dict)
    """The prompts alone whose horizons a census measured, with policy `recorded`."""
    audits: Mapping[str, AuditReport] = field(default_factory=dict)
    """Of the learned gates, by family."""

    def families(self) -> tuple[list[Group], list[Pooled]]:
        """The policies that more than half of the groups have, pooled over the groups that have all of these."""
        count = Counter(point.policy for points in self.groups.values() for point in points)
        policies = [policy for policy in self.pooled if 2 * count[policy] > len(self.groups)]
        if FULL not in policies:
            return [], []
        groups = complete(self.groups, policies)
        return list(groups), pool(list(groups.values()), policies)

    def markdown(self) -> str:
        """The report."""
        parts = ["# Commit order study", self._head(), *(f"```\n{command}\n```" for command in self.commands)]
        parts += self._pooled()
        if any(matches(points) for points in self.groups.values()):
            parts += ["## Verdict of each family", family_table(self.groups), note(self.groups)]
            parts += ["## At matched rows", matched_table(self.groups)]
        parts += self._paired() + self._horizons() + self._gates()
        if self.factors:
            parts += ["## Canvas, weight, temperature", _FACTORS, factor_table(self.factors, self.factor_policies)]
        if self.moves:
            parts += ["## Switch curves", _SWITCH, switch_table(self.moves)]
        if self.ablations:
            parts += ["## Parts of the order left out", _ABLATIONS, ablation_table(self.ablations)]
        parts.append("## All policies")
        for (task, setting), points in self.groups.items():
            parts += [f"### {task}: {setting}, {points[0].prompts} prompts", group_table(points)]
        return "\n\n".join(parts) + "\n"

    def _head(self) -> str:
        common = self.common
        return (
            f"Model {common['model']} ({common['model_hash']}, {common['precision']}), seeds "
            f"{', '.join(map(str, common['seeds']))}, perplexity by {common['judge']}. Intervals: 95 %, bootstrap over "
            "prompts; every policy on every prompt. An interval without width says only that no prompt differed. "
            "*Loss*: full CFG in confidence order less the policy, on the same prompts. *Difference*: guidance first "
            "less the best confidence-order policy at no more rows, which was chosen on these prompts (a reading "
            "against guidance first); *wins* or *loses* where its interval excludes 0. Full CFG of several positions a "
            "step is no candidate there: its texts repeat themselves (see the tables). *Falls back*: a calibrated gate "
            "whose family has no setting in this order; its texts are full CFG's, and it counts as no guidance first."
        )

    def _pooled(self) -> list[str]:
        groups, pooled = self.families()
        if not pooled:
            return []
        left_out = [task for task, _ in self.groups if (task, _) not in groups]
        missing = f" Left out, for they lack some policy: {', '.join(left_out)}." if left_out else ""
        head = (
            f"{len(groups)} families, {pooled[0].prompts} prompts; each family weighs alike. Intervals resample "
            "prompts within families: they speak for these families. Rows and perplexity are ratios to full CFG's in "
            f"the family, averaged over families (perplexity geometrically).{missing}"
        )
        return ["## Pooled over families", head, pooled_table(pooled)]

    def _paired(self) -> list[str]:
        pairs = paired(self.groups)
        if not any(one.gate or one.oracle for one in pairs):
            return []
        groups, sources = with_gates(self.groups), (*SERVED, RECORDED)
        names = (point.policy for points in groups.values() for point in points if source_of(point) in sources)
        parts = ["## Beside learned gates on the same prompts", _PAIRED, paired_table(pairs)]
        return parts + self._together(groups, names)

    def _together(self, groups: Groups, names: Iterable[str]) -> list[str]:
        """`groups` pooled, over the study's policies and those in `names`."""
        policies = tuple(dict.fromkeys((*self.pooled, *names)))
        kept, pooled = OrderStudy(groups, self.common, (), policies).families()
        over = ", ".join(task for task, _ in kept)
        return [f"These families together ({over}):", pooled_table(pooled)] if pooled else []

    def _horizons(self) -> list[str]:
        pairs = self._horizon_pairs()
        if not pairs:
            return []
        names = (point.policy for points in self.horizons.values() for point in points if is_recorded(point))
        parts = ["## Beside measured horizons on the same prompts", _HORIZONS, paired_table(pairs)]
        return parts + self._together(self.horizons, names)

    def _horizon_pairs(self) -> list[Paired]:
        return [replace(one, gate=None) for one in paired(self.horizons) if one.oracle is not None]

    def _gates(self) -> list[str]:
        matched = audit_matches(self.groups, self.audits)
        if not matched:
            return []
        groups = {one.group: self.groups[one.group] for one in matched}
        kept, pooled = OrderStudy(groups, self.common, (), self.pooled).families()
        names = [task for task, _ in kept or groups]
        parts = ["## Beside learned gates and measured horizons", _GATES, audit_match_table(matched)]
        parts += [f"The audit's gates over {', '.join(names)}:", gates_table(names, self.audits)]
        return parts + (["This study's policies over the same families:", pooled_table(pooled)] if pooled else [])

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain JSON."""
        groups, pooled = self.families()
        return {
            **self.common,
            "commands": list(self.commands),
            "pooled": {"families": [task for task, _ in groups], "policies": [one.to_json() for one in pooled]},
            "verdicts": [
                {
                    "task": one.group[0],
                    **_match(one.best),
                    "halves": round(one.halves, 3),
                    "alone": dict(one.counts),
                    "after_holm": dict(one.corrected),
                }
                for one in family_verdicts(self.groups)
            ],
            "paired_gates": [
                {"task": one.group[0], **_match(match)}
                for one in (*paired(self.groups), *self._horizon_pairs())
                for match in (one.gate, one.oracle)
                if match is not None
            ],
            "beside_gates": [one.to_json() for one in audit_matches(self.groups, self.audits)],
            "factors": [one.to_json() for one in self.factors],
            "switch": [one.to_json() for one in self.moves],
            "groups": [_group(group, points) for group, points in self.groups.items()],
            "ablations": [one.to_json() for one in self.ablations],
        }


def _group(group: Group, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "task": group[0],
        "setting": str(group[1]),
        "policies": [point.to_json() for point in points],
        "matched": [_match(match) for match in matches(points)],
    }


def _match(match: Match) -> dict[str, Any]:
    return {
        "policy": match.point.policy,
        "against": match.rival.policy,
        "difference": match.difference.rounded,
        "verdict": match.verdict,
        "sign_test": round(match.p_value, 4),
    }


_PAIRED = (
    "Gates of this study's own results: the same prompts, so *difference* is paired. A gate that its family does not "
    "have is full CFG (intention to treat). `recorded` hands off at the prompt's measured horizon: its rollouts are "
    "not counted and no service knows it beforehand, so it is no rival in the verdicts above. Both sides of a line "
    "were chosen by their success."
)
_HORIZONS = (
    "On the audit prompts whose horizons the shipped census measured. `recorded` hands off there, and keeps guidance "
    "where a prompt has none: its rollouts are not counted, and no service knows a horizon beforehand."
)
_GATES = (
    "The gate audit decoded confidence order on audit prompts of these families with seeds of its own, so nothing is "
    "paired here: *difference* adds the squares of both intervals. `oracle` hands off at the prompt's measured horizon "
    "(gate source `recorded`, its rollouts not counted), `value` at its default price. Both sides of a line were "
    "chosen by their success."
)
_FACTORS = (
    "Cells: success, rows as a share of full CFG's, perplexity over full CFG's in the same setting, repeats; each "
    "family weighs alike, on the prompts that all settings of a family have. Families differ between lines where a "
    "factor could not be moved; intervals are in `study.json`."
)
_SWITCH = (
    "S(t): success of fresh runs that hand off at t; a*: the earliest share of the steps from which S stays within "
    "0.05 of S(T) at every later point of the grid. *To confidence's S(T)*: the same for guidance first against full "
    "CFG in confidence order, which is what a request gives up. *Resampled*: shares of 1000 resamples of the prompts "
    "in which guidance first has the earlier, and the later, a* (own S(T)); *earlier* or *later* from 95 % on."
)
_ABLATIONS = (
    "`whole_words`: a started word goes first and ends under guidance. `text_margins`: the first sixteenth and "
    "the last eighth of a canvas go last. *Difference*: success with the part less success without it, on the same "
    "prompts; families together weigh alike."
)
