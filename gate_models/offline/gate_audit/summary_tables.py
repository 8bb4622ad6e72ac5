"""`astargate gate tables`: the tables of docs/results/gate-audit/README.md, from the gates' audits.

Intention to treat: every audit prompt counts, a gate that falls back as the full CFG that it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gate_models.gates.learned.audit_report import AuditPoint, AuditReport, Gap, reports_in
from gate_models.offline.runs import markdown

SOURCES: Final = ("constant", "raw", "policy", "value 0.002", "risk 0.05", "risk 0.12", "oracle")
"""In the order of the tables; the price and the margins are those that the audit reads off."""
FULL: Final = "full_cfg"


def summary_tables(folder: Path, widths: Sequence[int]) -> str:
    """Every table of the gates and reports in a folder. Raises `ValueError` where there is no report."""
    reports, refused = reports_in([folder])
    pooled = AuditReport.load(folder)
    if pooled is None or not reports:
        reason = "; ".join(refused)
        raise ValueError(f"no audit reports in {folder}: astargate gate audit --compact {folder} {reason}")
    parts = [pooled_table(pooled, widths), *(f"\n{family_table(reports.values(), width)}" for width in widths)]
    parts.append(
        f"\n{pooled.prompts} audit prompts of {len(reports)} families, {pooled.samples} fresh runs each, seed "
        f"{pooled.seed}, model {pooled.model_hash}; perplexity by {pooled.judge}; 95 % bootstrap over prompts."
    )
    return "\n".join(parts)


def pooled_table(report: AuditReport, widths: Sequence[int], sources: Sequence[str] = SOURCES) -> str:
    """One line a source and tail width, all families together."""
    full = point_of(report, FULL, 1)
    chosen = [(FULL, 1), *((FULL, width) for width in widths if width > 1)]
    chosen += [(source, width) for width in widths for source in sources]
    points = [(source, width, find(report.points, source, width)) for source, width in chosen]
    heads = (
        "gate",
        "K",
        "success",
        "95 %",
        "less full CFG",
        "rows / text",
        "of full CFG",
        "at equal rows",
        "ppl",
        "repeats",
    )
    rows = [_pooled_row(source, width, point, full) for source, width, point in points if point is not None]
    return markdown.table(heads, rows)


def _pooled_row(source: str, width: int, point: AuditPoint, full: AuditPoint) -> tuple[str, ...]:
    return (
        source,
        str(width),
        f"{point.success:.3f}",
        f"{point.low:.2f}-{point.high:.2f}",
        _signed(point.against_full_cfg),
        f"{point.forward_evaluations:.1f}",
        f"{point.forward_evaluations / full.forward_evaluations:.0%}",
        _signed(point.at_equal_rows),
        "-" if point.perplexity is None else f"{point.perplexity:.0f}",
        f"{point.repeats:.2f}",
    )


def family_table(reports: Iterable[AuditReport], width: int, sources: Sequence[str] = SOURCES) -> str:
    """One line a family: success of each source, and its rows, at one tail width."""
    shown = (FULL, *sources)
    rows = []
    for report in sorted(reports, key=lambda report: report.family):
        points = [find(report.points, source, 1 if source == FULL else width) for source in shown]
        texts = ["-" if p is None else f"{p.success:.2f} @ {p.forward_evaluations:.1f}" for p in points]
        rows.append((report.family, *texts))
    return markdown.table((f"family, K = {width}", *shown), rows)


def find(points: Iterable[AuditPoint], source: str, width: int) -> AuditPoint | None:
    """The point of a source at a tail width; None where the audit has none."""
    return next((point for point in points if (point.source, point.tail_width) == (source, width)), None)


def point_of(report: AuditReport, source: str, width: int) -> AuditPoint:
    """`find`, where there must be one. Raises `ValueError`."""
    point = find(report.points, source, width)
    if point is None:
        raise ValueError(f"the audit of {report.family} has no {source} at tail width {width}")
    return point


def _signed(gap: Gap | None) -> str:
    return "-" if gap is None else f"{gap.value:+.3f} [{gap.low:+.2f}, {gap.high:+.2f}]"
