"""Writes the small report of a gate audit: it ships beside the gates, and a server shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gate_models.gates.learned.audit_report import POOLED, AuditPoint, AuditReport, Gap


def export(content: Mapping[str, Any], gates: Path) -> list[Path]:
    """Write the reports of an audit (`gate_audit.run`): each family's into its gate's folder in `gates`, the pooled
    one into `gates` itself. Return the folders.
    """
    parts = dict(content["families"])
    if POOLED in content:
        parts[POOLED] = content[POOLED]
    written = []
    for family, part in parts.items():
        folder = gates if family == POOLED else gates / family
        _report(family, part, content).save(folder)
        written.append(folder)
    return written


def _report(family: str, part: Mapping[str, Any], content: Mapping[str, Any]) -> AuditReport:
    results = part["intention_to_treat"]
    return AuditReport(
        family=family,
        gate=part["version"],
        model_hash=content["model_hash"],
        prompts=results[0]["prompts"],
        samples=content["settings"]["samples"],
        seed=content["seed"],
        judge=content["judge"],
        points=tuple(_point(result) for result in results),
    )


def _point(result: Mapping[str, Any]) -> AuditPoint:
    success, against = result["success"], result["against"]
    return AuditPoint(
        source=result["source"],
        tail_width=result["width"],
        success=_short(success["value"]),
        low=_short(success["low"]),
        high=_short(success["high"]),
        forward_evaluations=_short(result["rows"]),
        perplexity=None if result["perplexity"] is None else _short(result["perplexity"]),
        repeats=_short(result["repeats"]),
        handed_off=_short(result["handed_off"]),
        against_full_cfg=_gap(against["full_cfg"]),
        at_equal_rows=_gap(against["frontier"]) if "frontier" in against else None,
    )


def _gap(interval: Mapping[str, Any]) -> Gap:
    return Gap(_short(interval["value"]), _short(interval["low"]), _short(interval["high"]))


def _short(value: float) -> float:
    return round(float(value), 4)
