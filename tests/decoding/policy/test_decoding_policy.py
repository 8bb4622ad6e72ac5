"""Contract 6: one validated policy object; unused fields are refused, never ignored."""

from __future__ import annotations

import math
from typing import Any

import pytest

from decoding.policy.checks import PolicyError
from decoding.policy.decoding_policy import PRESETS
from decoding.policy.gate import GATE_FIELDS, GateSettings
from decoding.policy.presets import resolve_policy


def test_presets() -> None:
    assert resolve_policy("base", {}).guidance_scale == 0.0
    assert resolve_policy("full_cfg", {}).gate.source == "never"
    assert resolve_policy("handoff", {}).tail_width == 1
    assert resolve_policy("parallel_tail", {}).tail_width == 8
    assert resolve_policy("parallel_tail", {}, gen_length=4).tail_width == 4


@pytest.mark.parametrize(
    ("preset", "given", "param"),
    [
        ("fast", {}, "preset"),
        ("base", {"gate": GateSettings("never")}, "gate"),
        ("base", {"guidance_scale": 2.0}, "guidance_scale"),
        ("base", {"guided_width": 2}, "guided_width"),
        ("base", {"order": "guidance_boost"}, "order"),
        ("base", {"order": "conditional"}, "order"),
        ("base", {"plausibility": 0.1}, "plausibility"),
        ("auto", {"plausibility": 0.1}, "plausibility"),
        ("full_cfg", {"plausibility": 0.0}, "plausibility"),
        ("full_cfg", {"plausibility": 1.5}, "plausibility"),
        ("full_cfg", {"plausibility": math.nan}, "plausibility"),
        ("handoff", {"guidance_scale": 0.0, "plausibility": 0.1}, "plausibility"),
        ("full_cfg", {"order": "conditional", "guided_width": 4, "boost_threshold": 0.5}, "boost_threshold"),
        ("full_cfg", {"tail_width": 4}, "tail_width"),
        ("full_cfg", {"gate": GateSettings("never")}, "gate"),
        ("full_cfg", {"on_fallback": "base"}, "on_fallback"),
        ("handoff", {"gate": GateSettings("never"), "tail_width": 8}, "tail_width"),
        ("handoff", {"guidance_scale": math.nan}, "guidance_scale"),
        ("handoff", {"guidance_scale": math.inf}, "guidance_scale"),
        ("handoff", {"guidance_scale": -1.0}, "guidance_scale"),
        ("handoff", {"guidance_scale": True}, "guidance_scale"),
        ("handoff", {"guidance_scale": 1e6}, "guidance_scale"),
        ("handoff", {"tail_width": 0}, "tail_width"),
        ("handoff", {"tail_width": 1.5}, "tail_width"),
        ("handoff", {"tail_width": True}, "tail_width"),
        ("handoff", {"tail_width": 17}, "tail_width"),
        ("handoff", {"guided_width": 17}, "guided_width"),
        ("handoff", {"tail_threshold": 0.9}, "tail_threshold"),
        ("handoff", {"tail_rule": "spaced"}, "tail_rule"),
        ("parallel_tail", {"tail_rule": "best"}, "tail_rule"),
        ("handoff", {"tail_schedule": "growing"}, "tail_schedule"),
        ("parallel_tail", {"tail_schedule": "shrinking"}, "tail_schedule"),
        ("full_cfg", {"tail_schedule": "growing"}, "tail_schedule"),
        ("handoff", {"tail_mend": 4}, "tail_mend"),
        ("parallel_tail", {"tail_mend": 1}, "tail_mend"),
        ("parallel_tail", {"tail_mend": 65}, "tail_mend"),
        ("parallel_tail", {"tail_mend": 4, "gate": GateSettings("drained", recheck=4)}, "tail_mend"),
        ("full_cfg", {"tail_mend": 4}, "tail_mend"),
        ("full_cfg", {"tail_rule": "spaced"}, "tail_rule"),
        ("full_cfg", {"tail_temperature": 0.5}, "tail_temperature"),
        ("base", {"tail_temperature": 0.5}, "tail_temperature"),
        ("handoff", {"tail_temperature": 99.0}, "tail_temperature"),
        ("auto", {"tail_rule": "spaced"}, "tail_rule"),
        ("handoff", {"tail_width": 4, "tail_threshold": 1.1}, "tail_threshold"),
        ("handoff", {"order": "alphabetical"}, "order"),
        ("handoff", {"on_fallback": "pray"}, "on_fallback"),
        ("handoff", {"guidance_scale": 0.0, "guided_width": 2}, "guided_width"),
    ],
)
def test_refusals_name_the_field(preset: str, given: dict[str, Any], param: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve_policy(preset, given, gen_length=16)
    assert caught.value.param == param
    assert str(caught.value)


@pytest.mark.parametrize("source", GATE_FIELDS)
@pytest.mark.parametrize("name", ["fraction", "margin", "confidence", "row_price", "threshold"])
def test_every_gate_source_refuses_what_it_does_not_use(source: str, name: str) -> None:
    required = {"fraction": 0.5} if source == "fraction" else {}
    if name in GATE_FIELDS[source]:
        GateSettings(source, **(required | {name: 0.5}))  # type: ignore[arg-type]
        for value in (
            math.nan,
            -0.1,
            1.1,
            True,
            "0.3",
            *({"margin": (0, 1), "confidence": (0.0, 1), "threshold": (0,)}.get(name, ())),
        ):
            with pytest.raises(PolicyError) as caught:
                GateSettings(source, **(required | {name: value}))  # type: ignore[arg-type]
            assert caught.value.param == f"gate.{name}"
    else:
        with pytest.raises(PolicyError) as caught:
            GateSettings(source, **(required | {name: 0.5}))  # type: ignore[arg-type]
        assert caught.value.param == f"gate.{name}"


def test_an_end_that_means_nothing_says_what_to_do() -> None:
    for source, name, value, way_out in (
        ("drained", "threshold", 0, "gate source 'never'"),
        ("drained", "margin", 0.0, "gate source 'never'"),
        ("risk", "margin", 1, "gate source 'fraction'"),
        ("risk", "confidence", 1.0, "0.95"),
    ):
        with pytest.raises(PolicyError, match=f"must not be {value:g}: .*{way_out}"):
            GateSettings(source, **{name: value})  # type: ignore[arg-type]


def test_fraction_is_required_by_its_source() -> None:
    with pytest.raises(PolicyError, match="required"):
        GateSettings("fraction")


def test_unknown_source() -> None:
    with pytest.raises(PolicyError) as caught:
        GateSettings("oracle")  # type: ignore[arg-type]
    assert caught.value.param == "gate.source"


def test_every_preset_is_reachable_with_defaults() -> None:
    for preset in PRESETS:
        assert resolve_policy(preset, {}, gen_length=16).preset == preset
