"""Calibrated thresholds read on audit prompts: the policy that runs each, its own canvas, its own model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from decoding.gates.protocol import Regime
from gate_models.gates.calibrated.drained import DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.drained import audit as audit_drained
from gate_models.policies.names import parse_policy
from service.cli import app
from tests.gate_models.order_study.samples import result, samples

PLAIN = Regime("hash", "commongen-k3", 2.0, 16, 16, 1, 1.0, None, "probability", "confidence", "as_is")
FIRST = replace(PLAIN, order="guidance_boost", guided_width=8, boost_threshold=0.8, tail_width=4)
EVIDENCE = {"prompts": 60, "curve": {"0.6": {"loss": 0.01}}}


def measured(regime: Regime, threshold: float | None = 0.6) -> DrainedThreshold:
    return DrainedThreshold(regime, threshold, {}, EVIDENCE)


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """Full CFG .8, the plain threshold .7 and the boosted one .5, on twelve prompts."""
    texts: dict[str, list[dict[str, Any]]] = {
        "full_cfg": samples([0.8] * 12, 32),
        "calibrated": samples([0.7] * 12, 24),
        "calibrated:guidance_boost:b0.8:k4": samples([0.5] * 12, 11),
        "drained:0.6:k2": samples([0.1] * 12, 11),
    }
    return result(tmp_path / "audit.json", "commongen-k3", texts)


def run(thresholds: Path, result: Path) -> Result:
    return CliRunner().invoke(app, ["drained", "audit", str(result), "--thresholds", str(thresholds)])


def test_each_threshold_gets_its_own_reading(audit: Path, tmp_path: Path) -> None:
    path = tmp_path / "drained.json"
    write_thresholds([measured(PLAIN), measured(FIRST)], path)
    answer = run(path, audit)
    assert answer.exit_code == 0, answer.output
    plain, first = read_thresholds(path)
    assert plain.evidence["audit"]["loss"] == pytest.approx(0.1)
    assert first.evidence["audit"]["loss_interval_95"] == pytest.approx([0.3, 0.3])
    assert (first.evidence["audit"]["rows"], first.evidence["audit"]["full_cfg"]["rows"]) == (11, 32)
    assert (plain.evidence["curve"], plain.threshold) == (EVIDENCE["curve"], 0.6)
    assert "| commongen-k3 | guidance_boost | 4 | 0.6 | +0.01 | 12 | 0.80, 32, " in answer.stdout
    once = path.read_bytes()
    run(path, audit)
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    "other",
    [
        measured(replace(PLAIN, model_hash="another")),
        measured(replace(PLAIN, family="commongen-k4")),
        measured(replace(PLAIN, steps=24)),
        measured(replace(PLAIN, tail_width=2)),
        measured(replace(PLAIN, guidance_scale=4.0)),
        measured(replace(FIRST, boost_threshold=0.5)),
        measured(PLAIN, None),
    ],
)
def test_what_was_not_run_is_left_as_it_is(other: DrainedThreshold, audit: Path, tmp_path: Path) -> None:
    """A given threshold (`drained:0.6:k2`) is nobody's calibrated one."""
    path = tmp_path / "drained.json"
    write_thresholds([other], path)
    assert run(path, audit).exit_code == 0
    assert read_thresholds(path) == [other]


def test_the_policies_run_what_is_calibrated() -> None:
    named = [parse_policy(name).policy for name in audit_drained.policies()]
    assert named[0].preset == "full_cfg"
    assert {(policy.order, policy.tail_width) for policy in named[1:]} == {
        (order, width) for order in ("confidence", "guidance_boost") for width in (1, 2, 4, 8)
    }


def test_wrong_files_are_refused(audit: Path, tmp_path: Path) -> None:
    missing, wrong = run(tmp_path / "none.json", audit), run(audit, audit)
    assert (missing.exit_code, wrong.exit_code) == (2, 2)
    assert "none.json" in missing.stderr
    assert "not a file of drained thresholds" in wrong.stderr
