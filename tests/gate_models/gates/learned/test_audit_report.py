"""The small form of an audit: written, read back, refused where it is damaged, bound to its gate's version."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from gate_models.gates.learned.audit_report import POOLED, REPORT, AuditReport, AuditReportError, reports_in
from gate_models.offline.gate_audit import summary_tables
from gate_models.offline.gate_audit.export import export
from gate_models.offline.gate_audit.results import SourceResult
from gate_models.statistics.intervals import Estimate


def result(source: str, width: int, *, frontier: bool = True) -> SourceResult:
    estimate = Estimate(0.71234567, 0.6, 0.8, "bootstrap")
    against = {"full_cfg": Estimate(-0.05, -0.1, 0.0, "bootstrap")}
    if frontier:
        against["frontier"] = Estimate(0.02, -0.01, 0.05, "bootstrap")
    return SourceResult(source, width, 25, estimate, 20.25, None, 0.125, 0.9, 0.3, against)


def content(*families: str) -> dict:
    rows = [asdict(result("full_cfg", 1, frontier=False)), asdict(result("policy", 8))]
    parts = {family: {"version": f"v-{family}", "intention_to_treat": rows} for family in families}
    head = {"model_hash": "m", "judge": "trigram", "seed": 3, "settings": {"samples": 2}, "families": parts}
    return head | ({POOLED: {"version": None, "intention_to_treat": rows}} if len(families) > 1 else {})


def test_reports_lie_beside_their_gates_and_are_read_back(tmp_path):
    written = export(content("a", "b"), tmp_path)
    assert written == [tmp_path / "a", tmp_path / "b", tmp_path]
    report = AuditReport.load(tmp_path / "a")
    assert (report.family, report.gate, report.prompts, report.samples) == ("a", "v-a", 25, 2)
    assert [(p.source, p.tail_width, p.success, p.forward_evaluations) for p in report.points] == [
        ("full_cfg", 1, 0.7123, 20.25),
        ("policy", 8, 0.7123, 20.25),
    ]
    assert report.points[0].at_equal_rows is None
    assert report.points[1].at_equal_rows.low == -0.01
    assert AuditReport.load(tmp_path).gate is None
    reports, refused = reports_in([tmp_path, tmp_path / "nowhere"])
    assert (set(reports), refused) == ({"v-a", "v-b"}, [])


def test_one_family_has_no_pooled_report(tmp_path):
    export(content("a"), tmp_path)
    assert AuditReport.load(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"points": [{"source": "x"}]}', '{"points": 3}'])
def test_a_damaged_report_is_refused_by_name(tmp_path, text):
    export(content("a", "b"), tmp_path)
    (tmp_path / "a" / REPORT).write_text(text)
    with pytest.raises(AuditReportError, match="write it again"):
        AuditReport.load(tmp_path / "a")
    reports, refused = reports_in([tmp_path])
    assert set(reports) == {"v-b"}
    assert len(refused) == 1


def test_the_summary_tables_are_made_from_the_reports(tmp_path):
    export(content("a", "b"), tmp_path)
    printed = summary_tables.summary_tables(tmp_path, [8])
    assert "| full_cfg | 1 | 0.712 | 0.60-0.80 | -0.050 [-0.10, +0.00] | 20.2 | 100% | - | - | 0.12 |" in printed
    assert "| policy | 8 | 0.712 |" in printed
    assert "| b | 0.71 @ 20.2 | - | - | 0.71 @ 20.2 | - |" in printed
    assert "25 audit prompts of 2 families, 2 fresh runs each, seed 3" in printed
    (tmp_path / REPORT).unlink()
    with pytest.raises(ValueError, match="gate audit --compact"):
        summary_tables.summary_tables(tmp_path, [8])
