"""What `on_fallback: drained` gives where a measurement is missing, withheld or suspended, and the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decoding.gates.builtin import BUILTIN, NeverGate
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.pooled import POOLED, UNMEASURED, PooledThreshold, shipped_pooled, write_pooled
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.shipped import Calibrations
from service.backend import backend
from service.backend.watched_gates import WatchedGates
from service.config.settings import Settings
from service.generation.prepare import Prepared, prepare
from service.schemas.generate import GenerateRequest
from tests.shipped import mini

BODY = {"prompt": "Write one sentence.", "constraint": {"type": "keywords", "keywords": ["a", "b", "c"]}, "seed": 1}
ELSEWHERE = {"gen_length": 32}


def gates(*pooled: PooledThreshold) -> LearnedGates:
    shipped = Calibrations.shipped(mini().spec)
    resolver = replace(shipped, pooled=pooled).resolver()
    return LearnedGates([], resolver, TextReader.of(mini().spec, mini().codec))


def own() -> PooledThreshold:
    return next(one for one in shipped_pooled() if one.model_hash == mini().spec.hash)


def prepared(held: LearnedGates | WatchedGates, **fields: object) -> Prepared:
    return prepare(GenerateRequest.model_validate({**BODY, **fields}), mini(), held, Settings())


def test_a_model_without_a_measurement_gets_a_cautious_gate_and_says_how_to_measure() -> None:
    found = prepared(gates(replace(own(), model_hash="another")), **ELSEWHERE)
    assert (found.job.gate, found.choice.evidence, found.choice.measured) == (UNMEASURED, "none", None)
    assert "astargate drained pooled --model" in (found.choice.fallback_reason or "")
    assert mini().spec.hash in (found.choice.fallback_reason or "")


def test_outside_what_was_measured_the_reason_names_the_setting() -> None:
    found = prepared(gates(own()), **ELSEWHERE, policy={"guidance_scale": 9})
    assert (found.job.gate.version, found.choice.evidence) == (POOLED, "none")
    assert "guidance_scale 9 (measured: 1 to 4)" in (found.choice.fallback_reason or "")


def test_a_model_that_was_measured_is_handed_off() -> None:
    found = prepared(gates(own()), **ELSEWHERE)
    assert (found.job.gate.source, found.job.gate.version) == ("drained", POOLED)
    assert (found.choice.evidence, found.choice.measured) == ("pooled", own().measured)
    assert (found.fallback, found.job.record) == ("no_gate", "commits")


def test_a_family_that_is_withheld_keeps_full_cfg() -> None:
    lost = {"loss": 0.3, "loss_interval_95": [0.2, 0.4], "pairs": 50}
    found = prepared(gates(replace(own(), withheld={"commongen-k3": lost})), **ELSEWHERE)
    assert isinstance(found.job.gate, NeverGate)
    assert "withheld from family 'commongen-k3'" in (found.choice.fallback_reason or "")


def test_where_the_family_was_calibrated_its_own_threshold_steps_in() -> None:
    found = prepared(gates(own()), gen_length=16, policy={"gate": {"source": "value"}})
    assert found.choice.evidence == "audited"
    assert found.job.gate.version not in (POOLED, BUILTIN)


@pytest.mark.parametrize("suspended", ["constant", "drained"])
def test_a_suspended_gate_keeps_full_cfg(suspended: str) -> None:
    """Whether it is the gate that was asked for, or the calibrated one that would step in for another."""
    watched = WatchedGates(gates(own()), lambda gate: "suspended here" if gate.source == suspended else None)
    asked = {"source": "constant"} if suspended == "constant" else {"source": "value"}
    found = prepared(watched, gen_length=16, policy={"gate": asked})
    assert isinstance(found.job.gate, NeverGate)
    assert "suspended here" in (found.choice.fallback_reason or "")
    assert (found.fallback == "suspended") == (suspended == "constant")


def test_the_shadow_audit_does_not_watch_a_pooled_gate() -> None:
    def never(gate: object) -> str | None:
        raise AssertionError(f"{gate} is nobody's to suspend")

    assert prepared(WatchedGates(gates(own()), never), **ELSEWHERE).choice.evidence == "pooled"
    assert prepared(WatchedGates(gates(), never), **ELSEWHERE).job.gate == UNMEASURED


def test_an_operator_s_file_that_cannot_be_read_is_left_out(tmp_path, caplog) -> None:
    (tmp_path / "pooled.json").write_text("{}", encoding="utf-8")
    found = backend._calibrations(mini(), Settings(gates=tmp_path))
    assert found.pooled_of(mini().spec.hash) == own()
    assert "pooled.json" in caplog.text


def test_an_operator_s_measurement_goes_before_the_package_s(tmp_path) -> None:
    mine = replace(own(), threshold=0.25)
    write_pooled([mine], tmp_path / "pooled.json")
    assert Calibrations.shipped(mini().spec, tmp_path).pooled_of(mini().spec.hash).threshold == 0.25
