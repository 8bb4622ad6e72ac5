"""Contract 7: a cut is used in its own regime only; elsewhere the reason and the nearest regime are given."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from decoding.gates.builtin import FractionGate, NeverGate
from decoding.gates.protocol import Regime
from decoding.policy.gate import GateSettings
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates, earliest_safe, read_cuts, write_cuts
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.offline.gate_training.calibrate_constant import _job
from gate_models.offline.gate_training.settings import ConstantPlan
from tests.decoding.tiny import tiny_model

REGIME = Regime("hash", "commongen-k3", 2.0, 16, 16, 1, 1.0, None, "probability", "confidence", "as_is")
NEVER = dataclasses.replace(REGIME, tail_width=8)
GATES = ConstantGates((ConstantCut(REGIME, 0.7, {}), ConstantCut(NEVER, None, {})))
CONSTANT = GateSettings("constant")


def test_a_cut_in_its_regime() -> None:
    choice = GATES.resolve(CONSTANT, REGIME)
    assert isinstance(choice.gate, FractionGate)
    assert (choice.gate.fraction, choice.gate.source) == (0.7, "constant")


def test_a_family_without_a_safe_cut_stays_guided() -> None:
    choice = GATES.resolve(CONSTANT, NEVER)
    assert isinstance(choice.gate, NeverGate)
    assert choice.gate.source == "constant"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_hash", "other"),
        ("guidance_scale", 1.0),
        ("steps", 32),
        ("gen_length", 32),
        ("tail_width", 4),
        ("temperature", 0.6),
        ("block_length", 8),
        ("confidence", "margin"),
        ("order", "guidance_boost"),
        ("eos", "eos_fill"),
        ("tail_reuse", "prefix:8"),
    ],
)
def test_outside_its_regime_a_cut_is_not_used(field: str, value: object) -> None:
    choice = GATES.resolve(CONSTANT, dataclasses.replace(REGIME, **{field: value}))  # type: ignore[arg-type]
    assert choice.gate is None
    assert field in (choice.fallback_reason or "")
    assert choice.nearest_regime is not None
    assert choice.nearest_regime["family"] == "commongen-k3"


def test_a_cut_is_never_borrowed_from_another_family() -> None:
    choice = GATES.resolve(CONSTANT, dataclasses.replace(REGIME, family="commongen-k4"))
    assert choice.gate is None
    assert choice.nearest_regime is None


def test_other_sources_go_to_the_builtin_gates() -> None:
    assert GATES.resolve(GateSettings("fraction", fraction=0.2), REGIME).gate == FractionGate(0.2)


def test_round_trip_and_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "cuts.json"
    write_cuts(list(GATES.cuts), path)
    assert read_cuts(path) == list(GATES.cuts)
    path.write_text(json.dumps({"format": 99, "cuts": []}))
    with pytest.raises(ValueError, match="format 99"):
        read_cuts(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="cuts"):
        read_cuts(path)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ({0.1: 0.8, 0.5: 0.8, 0.9: 0.8}, 0.1),
        ({0.1: 0.8, 0.5: 0.5, 0.9: 0.8}, 0.9),
        ({0.1: 0.1, 0.5: 0.78, 0.9: 0.79}, 0.5),
        ({0.1: 0.9, 0.5: 0.9, 0.9: 0.7}, None),
    ],
)
def test_the_earliest_cut_that_is_safe_from_there_on(curve: dict[float, float], expected: float | None) -> None:
    assert earliest_safe(curve, 0.8, 0.03) == expected


@pytest.mark.parametrize("task", ["held-out-wording", "ccg-length", "ifeval-no-comma"])
def test_calibration_asks_as_evaluation_does(task: str) -> None:
    model, prompt = tiny_model(), load_task(task, 1)[0]
    assert _job(model, prompt, ConstantPlan((task,)), 1).prompt_ids == tuple(model.codec.encode_prompt(prompt.text()))
