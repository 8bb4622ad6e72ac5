"""Guidance first beside learned gates (`policy`, `value`, `raw`, `risk`) and measured horizons.

Where a study's own results hold such policies, they are compared on the same prompts. Elsewhere those of the gate audit
stand in. The audit decoded confidence order on audit prompts of the same families and model, with seeds and samples of
its own: the two studies share no texts, so differences are those of independent estimates (square and add of their
intervals, Newcombe 1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from gate_models.gates.audit_report import AuditPoint, AuditReport
from gate_models.gates.shipped import shipped_folder
from gate_models.gates.sources import RECORDED, trained_sources
from gate_models.offline.order_study.matches import Match, against, cells, shown
from gate_models.offline.order_study.points import Group, Point
from gate_models.offline.order_study.pooled import FULL
from gate_models.policies.names import parse_policy
from gate_models.statistics.intervals import Estimate, square_and_add

SOURCES: Final = ("constant", "raw", "policy", "value 0.002", "oracle")
"""Of the audit; `oracle` hands off at the prompt's measured horizon, as gate source `recorded` does."""
WIDTHS: Final = (1, 4, 8)
OWN: Final = ("constant", *trained_sources())
"""Sources of the gates that a service can give."""


def source_of(point: Point) -> str:
    """The gate source of a policy; of `auto`, whose attempts have gates of their own, "never"."""
    policy = parse_policy(point.policy).policy
    return "never" if policy.preset == "auto" else policy.gate.source


def is_recorded(point: Point) -> bool:
    """Whether a policy hands off at measured horizons."""
    return source_of(point) == RECORDED


def with_gates(found: Mapping[Group, Sequence[Point]]) -> dict[Group, Sequence[Point]]:
    """The groups in whose own results learned gates or measured horizons are."""
    sources = (*trained_sources(), RECORDED)
    return {group: own for group, own in found.items() if any(source_of(point) in sources for point in own)}


@dataclass(frozen=True, slots=True)
class Paired:
    """A family's best guidance-first policy beside the best gate, and measured horizons, at no more rows."""

    group: Group
    gate: Match | None
    oracle: Match | None


def paired(found: Mapping[Group, Sequence[Point]]) -> list[Paired]:
    """Every group of `with_gates`; for each rival the guidance-first policy of the largest success that has one."""
    return [
        Paired(group, _best(own, OWN), _best(own, (RECORDED,)))
        for group, own in with_gates(found).items()
        if any(point.is_first for point in own)
    ]


def _best(own: Sequence[Point], sources: Sequence[str]) -> Match | None:
    rivals = [point for point in own if source_of(point) in sources and not point.series.startswith("guidance")]
    pairs = [match for point in own if point.is_first and (match := against(point, rivals)) is not None]
    return max(pairs, key=lambda match: (match.own.success.value, -match.own.rows), default=None)


def paired_table(found: Sequence[Paired]) -> str:
    """Markdown: a family and rival a line."""
    lines = [
        "| family | best guidance first | rows | success | ppl | gate, no more rows | rows | success | ppl "
        "| difference | |",
        "|" + "---|" * 11,
    ]
    lines += [
        f"| {one.group[0]} | {cells(match.own)} | {cells(match.other)} | {match.difference.signed} | {match.verdict} |"
        for one in found
        for match in (one.gate, one.oracle)
        if match is not None
    ]
    return "\n".join(lines)


def shipped_reports(model_hash: str) -> dict[str, AuditReport]:
    """The audits of the shipped gates of a model, by family."""
    folders = sorted(path for path in shipped_folder().glob("*") if path.is_dir())
    return by_family(folders, model_hash)


def by_family(folders: Sequence[Path], model_hash: str) -> dict[str, AuditReport]:
    """The audits in `folders` that are of a model, by family."""
    found = [report for folder in folders if (report := AuditReport.load(folder)) is not None]
    return {report.family: report for report in found if report.model_hash == model_hash}


@dataclass(frozen=True, slots=True)
class Beside:
    """A family's best guidance-first policy beside the best gate that costs no more rows."""

    group: Group
    own: Point
    gate: AuditPoint
    prompts: int
    """Of the audit."""

    @property
    def difference(self) -> Estimate:
        """Success of guidance first less the gate's."""
        gate = self.gate
        return square_and_add(self.own.success, Estimate(gate.success, gate.low, gate.high, "prompt_bootstrap"))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, rounded."""
        return {
            "task": self.group[0],
            "policy": self.own.policy,
            "source": self.gate.source,
            "tail_width": self.gate.tail_width,
            "rows": [round(self.own.rows, 2), round(self.gate.forward_evaluations, 2)],
            "difference": self.difference.rounded,
        }


def beside(found: Mapping[Group, Sequence[Point]], reports: Mapping[str, AuditReport]) -> list[Beside]:
    """Every audited family whose guidance-first policies have such a gate; both sides chosen by their success.

    Not the groups that hold such gates themselves.
    """
    kept, own_gates = [], with_gates(found)
    for group, points in found.items():
        report = None if group in own_gates else reports.get(group[0])
        gates = _gates(report) if report is not None and not group[1].without else []
        least = min((gate.forward_evaluations for gate in gates), default=math.inf)
        own = [point for point in points if point.is_first and point.rows >= least]
        if report is None or not own:
            continue
        best = max(own, key=lambda point: (point.success.value, -point.rows))
        cheaper = [gate for gate in gates if gate.forward_evaluations <= best.rows + 1e-9]
        gate = max(cheaper, key=lambda one: (one.success, -one.forward_evaluations))
        kept.append(Beside(group, best, gate, report.prompts))
    return kept


def _gates(report: AuditReport) -> list[AuditPoint]:
    return [point for point in report.points if point.source in SOURCES and point.tail_width in WIDTHS]


def beside_table(found: Sequence[Beside]) -> str:
    """Markdown: a family a line."""
    lines = [
        "| family | best guidance first | rows | success | ppl | repeats | best gate, no more rows | rows | success "
        "| ppl | repeats | difference |",
        "|" + "---|" * 12,
    ]
    for one in found:
        own, gate = one.own, one.gate
        lines.append(
            f"| {one.group[0]} | {own.policy} | {own.rows:.1f} | {own.success.value:.2f} | {shown(own.perplexity)} "
            f"| {own.repeats:.2f} | {gate.source}, K = {gate.tail_width} | {gate.forward_evaluations:.1f} "
            f"| {gate.success:.2f} | {shown(gate.perplexity)} | {gate.repeats:.2f} | {one.difference.signed} |"
        )
    return "\n".join(lines)


def gates_table(families: Sequence[str], reports: Mapping[str, AuditReport]) -> str:
    """Markdown: every gate of the audit over `families`, each family alike."""
    own = [{(p.source, p.tail_width): p for p in reports[family].points} for family in families]
    lines = [
        "| gate, tail width | success | rows, of full CFG | ppl, x full CFG | repeats |",
        "|---|---|---|---|---|",
    ]
    keys = [(FULL, 1), *((source, width) for source in SOURCES for width in WIDTHS)]
    for source, width in keys:
        points = [found[source, width] for found in own if (source, width) in found]
        full = [found[FULL, 1] for found in own if (source, width) in found]
        if len(points) < len(own):
            continue
        share = np.mean([p.forward_evaluations / f.forward_evaluations for p, f in zip(points, full, strict=True)])
        ratios = [
            p.perplexity / f.perplexity for p, f in zip(points, full, strict=True) if p.perplexity and f.perplexity
        ]
        ratio = f"{math.exp(float(np.mean(np.log(ratios)))):.2f}" if len(ratios) == len(points) else "-"
        lines.append(
            f"| {source}, K = {width} | {np.mean([p.success for p in points]):.3f} | {share:.0%} | {ratio} "
            f"| {np.mean([p.repeats for p in points]):.2f} |"
        )
    return "\n".join(lines)
