"""The commit order study beside learned gates and measured horizons of the same results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gate_models.offline.order_study.learned_gates import audit_matches, paired
from gate_models.offline.order_study.matches import matches
from gate_models.offline.order_study.plots import plot_frontiers
from gate_models.offline.order_study.points import beside_recorded, read
from gate_models.offline.order_study.report import OrderStudy
from tests.gate_models.order_study.samples import result, samples
from tests.gate_models.order_study.test_report import COMMON, FIRST, OWN16, audit, family, measured


def test_gates_of_the_same_results_are_ordinary_rivals(tmp_path: Path) -> None:
    """Paired with the best gate that costs no more; measured horizons stand apart; the audit is not needed."""
    texts = {
        "base": samples([0.1] * 20, 16),
        "handoff:0.3": samples([0.5] * 20, 21),
        "full_cfg": samples([0.9] * 20, 32),
        "value:k8": samples([0.6] * 20, 15),
        "policy": samples([0.7] * 20, 30),
        "recorded": samples([1.0] * 20, 20),
        "auto": samples([0.1] * 20, 20),
        FIRST: samples([0.8] * 20, 21),
    }
    groups = {("a", OWN16): measured(texts), ("b", OWN16): family(20, 0.8)}
    (match,) = matches(groups["a", OWN16])
    assert (match.point.policy, match.rival.policy) == (FIRST, "value:k8")
    (one,) = paired(groups)
    assert one.gate is not None
    assert one.oracle is not None
    assert (one.gate.rival.policy, one.oracle.rival.policy) == ("value:k8", "recorded")
    assert [one.gate.difference.value, one.oracle.difference.value] == pytest.approx([0.2, -0.2])
    reports = {"a": audit("a", policy_1=0.6), "b": audit("b", policy_1=0.6)}
    assert [other.group[0] for other in audit_matches(groups, reports)] == ["b"]
    study = OrderStudy(groups, COMMON, (), ("base", "full_cfg", FIRST), audits=reports)
    shown = study.markdown()
    assert "| value:k8 | 15.0 | 0.60 |" in shown
    assert "These families together (a):" in shown
    assert "| recorded | 1.000 |" in shown
    assert [row["against"] for row in study.to_json()["paired_gates"]] == ["value:k8", "recorded"]
    plot_frontiers(groups, tmp_path / "frontiers.png")
    without = {("a", OWN16): measured({name: texts[name] for name in ("base", "full_cfg", "auto", FIRST)})}
    assert paired(without) == []


def test_measured_horizons_stand_beside_the_same_prompts_alone(tmp_path: Path) -> None:
    """A census measured four of twenty prompts, on which guidance first does better than elsewhere."""
    own: dict[str, list[dict[str, Any]]] = {
        "base": samples([0.1] * 20, 16),
        "full_cfg": samples([1.0] * 4 + [0.5] * 16, 32),
        FIRST: samples([0.9] * 4 + [0.1] * 16, 21),
    }
    texts, _ = read([result(tmp_path / "main.json", "a", own), result(tmp_path / "other.json", "b", own)])
    measured_too, _ = read([result(tmp_path / "recorded.json", "a", {"recorded": samples([1.0] * 4, 20)})])
    groups = {group: measured(one) for group, one in texts.items()}
    horizons = {group: measured(one) for group, one in beside_recorded(texts, measured_too).items()}
    assert [(group[0], [point.prompts for point in points]) for group, points in horizons.items()] == [("a", [4] * 4)]
    study = OrderStudy(groups, COMMON, (), ("base", "full_cfg", FIRST), horizons=horizons)
    shown = study.markdown()
    assert re.search(rf"\| a \| {FIRST} \| 21.0 \| 0.90 \| \d+ \| recorded \| 20.0 \| 1.00 \|", shown)
    assert "These families together (a):" in shown
    assert [row["against"] for row in study.to_json()["paired_gates"]] == ["recorded"]
    assert "recorded" not in OrderStudy(groups, COMMON, (), ("base", "full_cfg", FIRST)).markdown()
