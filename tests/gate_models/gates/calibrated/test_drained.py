"""Calibrated thresholds of `drained`: used in their own regime only, and honest elsewhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from decoding.gates.builtin import DrainedGate, FractionGate
from decoding.gates.protocol import GateView, MeasuredLoss, Regime
from decoding.policy.decoding_policy import PolicyError
from decoding.policy.gate import GATE_DEFAULTS, GateSettings
from decoding.records.trace import StepStats
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates
from gate_models.gates.calibrated.drained import (
    MEASURED,
    DrainedGates,
    DrainedThreshold,
    read_thresholds,
    write_thresholds,
)
from gate_models.gates.calibrated.pooled import (
    POOLED,
    UNMEASURED,
    PooledThreshold,
    evidence_of,
    read_pooled,
    shipped_pooled,
    write_pooled,
)

REGIME = Regime("hash", "commongen-k3", 2.0, 16, 16, 1, 1.0, None, "probability", "guidance_boost", "as_is")
PROMISED = {"0.01": None, "0.03": 0.2, "0.05": 0.4}
FOUND = DrainedThreshold(REGIME, 0.6, PROMISED, {"prompts": 90, "margin": 0.03})
DIFFUSE = dataclasses.replace(
    FOUND, regime=dataclasses.replace(REGIME, family="ccg-sentiment"), threshold=None, certified={"0.03": None}
)
GATES = DrainedGates((FOUND, DIFFUSE))
RANGES = {
    "guidance_scale": (1.0, 4.0),
    "temperature": (0.0, 1.0),
    "gen_length": (8.0, 64.0),
    "steps / gen_length": (0.5, 1.0),
}
POOL = PooledThreshold(
    "hash", 0.7, 0.5, 0.01, (-0.02, 0.04), 250, 0.8, RANGES, {"order": ("confidence",), "end of text": ("as_is",)}
)


def test_without_a_threshold_the_calibrated_one_serves_its_regime() -> None:
    gate = GATES.resolve(GateSettings("drained"), REGIME).gate
    assert gate == DrainedGate(0.6, version=MEASURED)


def test_a_threshold_that_its_audit_refuted_is_not_served() -> None:
    audit = {"prompts": 60, "texts": 60, "loss": 0.1, "loss_interval_95": [0.03, 0.18]}
    refuted = dataclasses.replace(FOUND, evidence={**FOUND.evidence, "audit": audit})
    choice = DrainedGates((refuted,)).resolve(GateSettings("drained"), REGIME)
    assert choice.gate is None
    assert "withheld: on 60 audit prompts it lost 0.10 [0.03, 0.18]" in (choice.fallback_reason or "")
    unclear = dataclasses.replace(refuted, evidence={"audit": {**audit, "loss_interval_95": [0.0, 0.18]}})
    assert DrainedGates((unclear,)).resolve(GateSettings("drained"), REGIME).gate is not None


@pytest.mark.parametrize("change", [{"steps": 32}, {"tail_width": 4}, {"family": "commongen-k4"}, {"family": None}])
def test_elsewhere_a_model_that_was_not_measured_gets_the_cautious_gate(change: dict[str, object]) -> None:
    gate = GATES.resolve(GateSettings("drained"), dataclasses.replace(REGIME, **change)).gate  # type: ignore[arg-type]
    assert gate == UNMEASURED
    assert (gate.threshold, gate.earliest, gate.version) == (GATE_DEFAULTS["threshold"], 0.5, "unmeasured")


def test_nothing_was_calibrated_with_rechecks() -> None:
    """Guidance that comes back decodes otherwise than what was measured; a given threshold serves as ever."""
    for regime in (REGIME, DIFFUSE.regime):
        assert GATES.resolve(GateSettings("drained", recheck=4), regime).gate == DrainedGate(GATE_DEFAULTS["threshold"])
    assert GATES.resolve(GateSettings("drained", recheck=4, threshold=0.2), REGIME).gate == DrainedGate(0.2)


def test_a_given_threshold_is_taken_as_it_is() -> None:
    assert GATES.resolve(GateSettings("drained", threshold=0.2), REGIME).gate == DrainedGate(0.2)
    assert GATES.resolve(GateSettings("drained", threshold=0.2), DIFFUSE.regime).gate == DrainedGate(0.2)


def test_guidance_that_does_not_drain_falls_back_with_the_reason() -> None:
    choice = GATES.resolve(GateSettings("drained"), DIFFUSE.regime)
    assert choice.gate is None
    assert "ccg-sentiment" in (choice.fallback_reason or "")
    assert "does not drain" in (choice.fallback_reason or "")


@pytest.mark.parametrize(("margin", "threshold"), [(0.03, 0.2), (0.04, 0.2), (0.9, 0.4), (0.01, None), (0.005, None)])
def test_a_margin_takes_the_certified_threshold_or_says_why_not(margin: float, threshold: float | None) -> None:
    choice = GATES.resolve(GateSettings("drained", margin=margin), REGIME)
    assert choice.gate == (None if threshold is None else DrainedGate(threshold, version=MEASURED))
    assert threshold is not None or "95% confidence" in (choice.fallback_reason or "")


def test_a_margin_promises_nothing_outside_the_regime() -> None:
    other = GATES.resolve(GateSettings("drained", margin=0.03), dataclasses.replace(REGIME, guidance_scale=1.0))
    assert other.gate is None
    assert "guidance_scale" in (other.fallback_reason or "")
    assert (other.nearest_regime or {})["guidance_scale"] == 2.0
    for family in ("commongen-k4", None):
        unknown = GATES.resolve(GateSettings("drained", margin=0.03), dataclasses.replace(REGIME, family=family))
        assert unknown.gate is None
        assert "no drained threshold" in (unknown.fallback_reason or "")


@pytest.mark.parametrize("with_margin", [{"threshold": 0.5}, {"recheck": 2}])
def test_a_margin_chooses_the_threshold_itself(with_margin: dict[str, float]) -> None:
    with pytest.raises(PolicyError, match=r"gate\.margin"):
        GateSettings("drained", margin=0.03, **with_margin)  # type: ignore[arg-type]


def test_constant_cuts_and_thresholds_stand_side_by_side() -> None:
    both = ConstantGates((ConstantCut(REGIME, 0.7, {}),), GATES)
    assert isinstance(both.resolve(GateSettings("constant"), REGIME).gate, FractionGate)
    assert both.resolve(GateSettings("drained"), REGIME).gate == DrainedGate(0.6, version=MEASURED)


def test_round_trip_and_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "drained.json"
    write_thresholds([FOUND, DIFFUSE], path)
    assert read_thresholds(path) == [FOUND, DIFFUSE]
    path.write_text('{"format": 7, "thresholds": []}')
    with pytest.raises(ValueError, match="format 7"):
        read_thresholds(path)


NEVER_AT = dataclasses.replace(
    POOL,
    model_hash="diffuse",
    threshold=None,
    loss=None,
    loss_interval_95=None,
    pairs=0,
    rows_of_full_cfg=None,
    evidence={"settings": {"margin": 0.05}},
)


def test_the_pooled_threshold_serves_elsewhere() -> None:
    gates = DrainedGates((FOUND, DIFFUSE), pooled=(dataclasses.replace(POOL, model_hash="another"), POOL))
    inside = dataclasses.replace(REGIME, family=None, gen_length=24, steps=24, order="confidence")
    choice = gates.resolve(GateSettings("drained"), inside)
    assert choice.gate == DrainedGate(0.7, 0.5, version=POOLED)
    assert (choice.evidence, choice.measured) == ("pooled", POOL.measured)
    here = gates.resolve(GateSettings("drained"), REGIME)
    assert (here.gate, here.evidence) == (DrainedGate(0.6, version=MEASURED), "audited")
    changes = {
        "guidance_scale 9 ": {"guidance_scale": 9.0}, "order random ": {"order": "random"},
        "order confidence, 3 a step": {"guided_width": 3}, "order confidence, plausibility 0.1": {"plausibility": 0.1},
    }  # fmt: skip
    for told, change in changes.items():
        other = gates.resolve(GateSettings("drained"), dataclasses.replace(inside, **change))  # type: ignore[arg-type]
        assert (other.gate, other.evidence, other.measured) == (choice.gate, "none", None)
        assert f"not measured at {told}" in (other.fallback_reason or "")
    unknown = gates.resolve(GateSettings("drained"), dataclasses.replace(inside, model_hash="new"))
    assert (unknown.gate, unknown.evidence, unknown.measured) == (UNMEASURED, "none", None)
    assert "astargate drained pooled" in (unknown.fallback_reason or "")
    assert gates.resolve(GateSettings("drained", margin=0.05), inside).gate is None
    assert gates.resolve(GateSettings("drained", recheck=2), inside).gate == DrainedGate(GATE_DEFAULTS["threshold"])


def test_a_version_tells_what_is_known() -> None:
    known = {version: evidence_of(version) for version in ("builtin", UNMEASURED.version, POOLED, MEASURED)}
    assert list(known.values()) == ["none", "none", "pooled", "audited"]


def test_a_harmed_family_and_a_model_that_does_not_drain_get_no_pooled_gate() -> None:
    elsewhere = dataclasses.replace(REGIME, steps=32)
    lost = {"loss": 0.2, "loss_interval_95": [0.1, 0.3], "pairs": 60}
    withheld = dataclasses.replace(POOL, withheld={"commongen-k3": lost})
    choice = DrainedGates((), pooled=(withheld,)).resolve(GateSettings("drained"), elsewhere)
    assert choice.gate is None
    assert "0.20 [0.10, 0.30]" in (choice.fallback_reason or "")
    none = DrainedGates((), pooled=(NEVER_AT,)).resolve(
        GateSettings("drained"), dataclasses.replace(elsewhere, model_hash="diffuse")
    )
    assert none.gate is None
    assert "0.05" in (none.fallback_reason or "")


def test_what_a_calibrated_threshold_lost_comes_from_its_audit() -> None:
    point = {"loss": 0.02, "loss_interval_95": [-0.01, 0.05]}
    measured = dataclasses.replace(FOUND, evidence={"prompts": 90, "samples": 2, "curve": {"0.6": point, "0.4": point}})
    assert measured.measured(0.6) == MeasuredLoss(0.02, -0.01, 0.05, 180)
    audit = {"loss": 0.01, "loss_interval_95": [-0.02, 0.04], "texts": 40}
    audited = dataclasses.replace(measured, evidence={**measured.evidence, "audit": audit})
    assert audited.measured(0.6) == MeasuredLoss(0.01, -0.02, 0.04, 40)
    assert audited.measured(0.4) == MeasuredLoss(0.02, -0.01, 0.05, 180)
    assert FOUND.measured(0.6) is None


def test_pooled_round_trip_and_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "pooled.json"
    write_pooled([POOL, NEVER_AT], path)
    whole = json.loads(path.read_text())
    write_pooled([POOL], path)
    assert read_pooled(path) == [NEVER_AT, POOL]
    assert shipped_pooled(tmp_path)[:2] == (NEVER_AT, POOL)
    entry = whole["models"][0]
    for wrong in ({"threshold": 0.0}, {"threshold": 3}, {"earliest": 1.0}, {"ranges": {}}, {"loss_interval_95": [1]}):
        path.write_text(json.dumps({"format": 1, "models": [{**entry, **wrong}]}))
        with pytest.raises(ValueError, match=r"pooled\.json"):
            read_pooled(path)
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="pooled thresholds"):
        shipped_pooled(tmp_path)


def test_no_handoff_comes_before_the_earliest_step() -> None:
    with pytest.raises(PolicyError, match=r"gate\.threshold"):
        GateSettings("drained", earliest=0.3)
    gate = GATES.resolve(GateSettings("drained", threshold=0.5, earliest=0.25), REGIME).gate
    assert gate == DrainedGate(0.5, 0.25)
    drained = StepStats(0, "guided", 0, (), (), (), 9, (), total_variation_left=0.1, word_open=False)
    views = [GateView(REGIME, step, 3, 9, (drained,)) for step in (1, 3, 4, 16)]
    assert [decision.handoff for decision in gate.decide(views)] == [False, False, True, True]
