"""Calibrated thresholds of `drained`: used in their own regime only, and honest elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from decoding.gates.builtin import DrainedGate, FractionGate
from decoding.gates.protocol import Regime
from decoding.policy.decoding_policy import PolicyError
from decoding.policy.gate import GATE_DEFAULTS, GateSettings
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates
from gate_models.gates.calibrated.drained import (
    MEASURED,
    DrainedGates,
    DrainedThreshold,
    read_thresholds,
    write_thresholds,
)

REGIME = Regime("hash", "commongen-k3", 2.0, 16, 16, 1, 1.0, None, "probability", "guidance_boost", "as_is")
PROMISED = {"0.01": None, "0.03": 0.2, "0.05": 0.4}
FOUND = DrainedThreshold(REGIME, 0.6, PROMISED, {"prompts": 90, "margin": 0.03})
DIFFUSE = dataclasses.replace(
    FOUND, regime=dataclasses.replace(REGIME, family="ccg-sentiment"), threshold=None, certified={"0.03": None}
)
GATES = DrainedGates((FOUND, DIFFUSE))


def test_without_a_threshold_the_calibrated_one_serves_its_regime() -> None:
    gate = GATES.resolve(GateSettings("drained"), REGIME).gate
    assert gate == DrainedGate(0.6, version=MEASURED)


@pytest.mark.parametrize("change", [{"steps": 32}, {"tail_width": 4}, {"family": "commongen-k4"}, {"family": None}])
def test_elsewhere_the_default_serves_and_its_version_says_so(change: dict[str, object]) -> None:
    gate = GATES.resolve(GateSettings("drained"), dataclasses.replace(REGIME, **change)).gate  # type: ignore[arg-type]
    assert gate == DrainedGate(GATE_DEFAULTS["threshold"])
    assert gate.version == "builtin"


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
