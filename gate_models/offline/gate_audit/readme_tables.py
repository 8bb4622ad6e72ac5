"""`python -m gate_models.offline.gate_audit.readme_tables`: README's tables of the shipped gates, from their audits.

Intention to treat: every audit prompt counts, a gate that falls back as the full CFG that it gets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gate_models.gates.audit_report import AuditPoint, AuditReport, Gap, reports_in
from gate_models.gates.shipped import shipped_folder

SOURCES: Final = ("constant", "raw", "policy", "value 0.002", "risk 0.05", "risk 0.12", "oracle")
"""In the order of the tables; the price and the margins are those that the audit reads off."""
FULL: Final = "full_cfg"


def pooled_table(report: AuditReport, widths: Sequence[int], sources: Sequence[str] = SOURCES) -> str:
    """One line a source and tail width, all families together."""
    full = point_of(report, FULL, 1)
    lines = [
        "| gate | K | success | 95 % | less full CFG | rows / text | of full CFG | at equal rows | ppl | repeats |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    chosen = [(FULL, 1), *((FULL, width) for width in widths if width > 1)]
    chosen += [(source, width) for width in widths for source in sources]
    for source, width in chosen:
        point = find(report.points, source, width)
        if point is None:
            continue
        share = point.forward_evaluations / full.forward_evaluations
        perplexity = "-" if point.perplexity is None else f"{point.perplexity:.0f}"
        lines.append(
            f"| {source} | {width} | {point.success:.3f} | {point.low:.2f}-{point.high:.2f} "
            f"| {_signed(point.against_full_cfg)} | {point.forward_evaluations:.1f} | {share:.0%} "
            f"| {_signed(point.at_equal_rows)} | {perplexity} | {point.repeats:.2f} |"
        )
    return "\n".join(lines)


def family_table(reports: Iterable[AuditReport], width: int, sources: Sequence[str] = SOURCES) -> str:
    """One line a family: success of each source, and its rows, at one tail width."""
    shown = (FULL, *sources)
    lines = [f"| family, K = {width} | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
    for report in sorted(reports, key=lambda report: report.family):
        cells = [find(report.points, source, 1 if source == FULL else width) for source in shown]
        texts = ["-" if p is None else f"{p.success:.2f} @ {p.forward_evaluations:.1f}" for p in cells]
        lines.append(f"| {report.family} | {' | '.join(texts)} |")
    return "\n".join(lines)


def find(points: Iterable[AuditPoint], source: str, width: int) -> AuditPoint | None:
    """The point of a source at a tail width; None where the audit has none."""
    return next((point for point in points if (point.source, point.tail_width) == (source, width)), None)


def point_of(report: AuditReport, source: str, width: int) -> AuditPoint:
    """`find`, where there must be one. Raises `ValueError`."""
    found = find(report.points, source, width)
    if found is None:
        raise ValueError(f"the audit of {report.family} has no {source} at tail width {width}")
    return found


def _signed(gap: Gap | None) -> str:
    return "-" if gap is None else f"{gap.value:+.3f} [{gap.low:+.2f}, {gap.high:+.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=Path, default=shipped_folder(), help="folder of gates and their reports")
    parser.add_argument("--widths", default="1,8", help="tail widths separated by commas")
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    reports, refused = reports_in([options.gates])
    pooled = AuditReport.load(options.gates)
    if pooled is None or not reports:
        reason = "; ".join(refused)
        raise SystemExit(
            f"no audit reports in {options.gates}: astargate gate audit --compact {options.gates} {reason}"
        )
    print(pooled_table(pooled, widths))
    for width in widths:
        print(f"\n{family_table(reports.values(), width)}")
    print(
        f"\n{pooled.prompts} audit prompts of {len(reports)} families, {pooled.samples} fresh runs each, seed "
        f"{pooled.seed}, model {pooled.model_hash}; perplexity by {pooled.judge}; 95 % bootstrap over prompts."
    )


if __name__ == "__main__":
    main()
