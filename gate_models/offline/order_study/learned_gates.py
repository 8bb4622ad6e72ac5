"""Whether guidance-first policies beat gates that were learned from data, or that know the measured horizon.

Where a study's results hold policies of the sources `policy`, `value`, `raw` or `risk`, they are compared on the same
prompts. Elsewhere those of the gate audit stand in. The audit decoded confidence order on audit prompts of the same
families and model, with its own seeds and samples. The two studies share no texts, so differences are those of
independent estimates (square and add of their intervals, Newcombe 1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from gate_models.gates.learned.audit_report import AuditPoint, AuditReport
from gate_models.gates.shipped import shipped_folder
from gate_models.gates.sources import RECORDED, trained_sources
from gate_models.offline.order_study.matches import Match, against, cells, shown
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.order_study.pooled import FULL
from gate_models.offline.runs.markdown import table
from gate_models.policies.names import parse_policy
from gate_models.statistics.intervals import Estimate, square_and_add

SOURCES: Final = ("constant", "raw", "policy", "value 0.002", "oracle")
"""Of the audit; `oracle` hands off at the prompt's measured horizon, as gate source `recorded` does."""
WIDTHS: Final = (1, 4, 8)
SERVED: Final = ("constant", *trained_sources())
"""Sources of the gates that a service can give."""


def source_of(point: Point) -> str:
    """The gate source of a policy; "never" for `auto`, whose attempts each have a gate."""
    policy = parse_policy(point.policy).policy
    return "never" if policy.preset == "auto" else policy.gate.source


def is_recorded(point: Point) -> bool:
    """Whether a policy hands off at measured horizons."""
    return source_of(point) == RECORDED


def with_gates(groups: Mapping[Group, Sequence[Point]]) -> dict[Group, Sequence[Point]]:
    """The groups that were decoded with learned gates or measured horizons among their policies."""
    sources = (*trained_sources(), RECORDED)
    return {group: points for group, points in groups.items() if any(source_of(point) in sources for point in points)}


@dataclass(frozen=True, slots=True)
class Paired:
    """A family's best guidance-first policy beside the best gate, and measured horizons, at no more rows."""

    group: Group
    gate: Match | None
    oracle: Match | None


def paired(groups: Mapping[Group, Sequence[Point]]) -> list[Paired]:
    """Every group of `with_gates`; for each rival the guidance-first policy of the largest success that has one."""
    return [
        Paired(group, _best(points, SERVED), _best(points, (RECORDED,)))
        for group, points in with_gates(groups).items()
        if any(point.is_first for point in points)
    ]


def _best(points: Sequence[Point], sources: Sequence[str]) -> Match | None:
    rivals = [point for point in points if source_of(point) in sources and not point.series.startswith("guidance")]
    pairs = [match for point in points if point.is_first and (match := against(point, rivals)) is not None]
    return max(pairs, key=lambda match: (match.point.success.value, -match.point.rows), default=None)


def paired_table(pairs: Sequence[Paired]) -> str:
    """Markdown: a family and rival a line."""
    figures = ("rows", "success", "ppl")
    heads = ["family", "best guidance first", *figures, "gate, no more rows", *figures, "difference", "verdict"]
    return table(
        heads,
        (
            [one.group[0], *cells(match.point), *cells(match.rival), match.difference.signed, match.verdict]
            for one in pairs
            for match in (one.gate, one.oracle)
            if match is not None
        ),
    )


def shipped_reports(model_hash: str) -> dict[str, AuditReport]:
    """The audits of the shipped gates of a model, by family."""
    folders = sorted(path for path in shipped_folder().glob("*") if path.is_dir())
    return by_family(folders, model_hash)


def by_family(folders: Sequence[Path], model_hash: str) -> dict[str, AuditReport]:
    """The audits in `folders` that are of a model, by family."""
    reports = [report for folder in folders if (report := AuditReport.load(folder)) is not None]
    return {report.family: report for report in reports if report.model_hash == model_hash}


@dataclass(frozen=True, slots=True)
class AuditMatch:
    """A family's best guidance-first policy beside the best gate of the gate audit that costs no more rows."""

    group: Group
    point: Point
    gate: AuditPoint
    prompts: int
    """Of the audit."""

    @property
    def difference(self) -> Estimate:
        """Success of guidance first less the gate's."""
        gate = self.gate
        return square_and_add(self.point.success, Estimate(gate.success, gate.low, gate.high, "prompt_bootstrap"))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "task": self.group[0],
            "policy": self.point.policy,
            "source": self.gate.source,
            "tail_width": self.gate.tail_width,
            "rows": [round(self.point.rows, 2), round(self.gate.forward_evaluations, 2)],
            "difference": self.difference.rounded,
        }


def audit_matches(groups: Mapping[Group, Sequence[Point]], reports: Mapping[str, AuditReport]) -> list[AuditMatch]:
    """Every audited family whose guidance-first policies have such a gate; both sides chosen by their success.

    Groups that were decoded with such gates are left out: `paired` has them.
    """
    kept, gated = [], with_gates(groups)
    for group, points in groups.items():
        report = None if group in gated else reports.get(group[0])
        gates = _gates(report) if report is not None and not group[1].without else []
        cheapest = min((gate.forward_evaluations for gate in gates), default=math.inf)
        guided = [point for point in points if point.is_first and point.rows >= cheapest]
        if report is None or not guided:
            continue
        best = max(guided, key=lambda point: (point.success.value, -point.rows))
        cheaper = [gate for gate in gates if gate.forward_evaluations <= best.rows + 1e-9]
        gate = max(cheaper, key=lambda one: (one.success, -one.forward_evaluations))
        kept.append(AuditMatch(group, best, gate, report.prompts))
    return kept


def _gates(report: AuditReport) -> list[AuditPoint]:
    return [point for point in report.points if point.source in SOURCES and point.tail_width in WIDTHS]


def audit_match_table(matched: Sequence[AuditMatch]) -> str:
    """Markdown: a family a line."""
    figures = ("rows", "success", "ppl", "repeats")
    heads = ["family", "best guidance first", *figures, "best gate, no more rows", *figures, "difference"]
    return table(heads, map(_audit_row, matched))


def _audit_row(one: AuditMatch) -> list[str]:
    gate = one.gate
    return [
        one.group[0],
        *cells(one.point),
        f"{one.point.repeats:.2f}",
        f"{gate.source}, K = {gate.tail_width}",
        f"{gate.forward_evaluations:.1f}",
        f"{gate.success:.2f}",
        shown(gate.perplexity),
        f"{gate.repeats:.2f}",
        one.difference.signed,
    ]


def gates_table(families: Sequence[str], reports: Mapping[str, AuditReport]) -> str:
    """Markdown: every gate of the audit over `families`, each family alike."""
    audits = [{(p.source, p.tail_width): p for p in reports[family].points} for family in families]
    settings = [(FULL, 1), *((source, width) for source in SOURCES for width in WIDTHS)]
    rows = [
        [f"{source}, K = {width}", *_gate_cells([(audit[source, width], audit[FULL, 1]) for audit in audits])]
        for source, width in settings
        if all((source, width) in audit for audit in audits)
    ]
    return table(["gate, tail width", "success", "rows, of full CFG", "ppl, x full CFG", "repeats"], rows)


def _gate_cells(pairs: Sequence[tuple[AuditPoint, AuditPoint]]) -> list[str]:
    """Means over families, each a gate and full CFG there."""
    ratios = [gate.perplexity / full.perplexity for gate, full in pairs if gate.perplexity and full.perplexity]
    return [
        f"{np.mean([gate.success for gate, _ in pairs]):.3f}",
        f"{np.mean([gate.forward_evaluations / full.forward_evaluations for gate, full in pairs]):.0%}",
        f"{math.exp(float(np.mean(np.log(ratios)))):.2f}" if len(ratios) == len(pairs) else "-",
        f"{np.mean([gate.repeats for gate, _ in pairs]):.2f}",
    ]
