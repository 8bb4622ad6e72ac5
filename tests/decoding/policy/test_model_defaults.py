"""A model's defaults fill what a request leaves open, and never make a request fail."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from decoding.policy.checks import PolicyError
from decoding.policy.decoding_policy import PRESETS, DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.model_defaults import policy_defaults
from decoding.policy.presets import resolve_policy
from decoding.policy.repair import Repair

DRAINED: dict[str, Any] = {
    "preset": "handoff",
    "guidance_scale": 1.0,
    "order": "conditional",
    "plausibility": 0.1,
    "gate": {"source": "drained", "threshold": 0.4},
    "tail_width": 4,
    "tail_rule": "spaced",
    "tail_schedule": "growing",
    "tail_mend": 4,
    "tail_temperature": 0.3,
}


def test_a_request_without_a_policy_gets_all_of_them() -> None:
    policy = resolve_policy(None, {}, defaults=policy_defaults(DRAINED))
    expected = {**DRAINED, "gate": GateSettings("drained", threshold=0.4)}
    assert {name: getattr(policy, name) for name in DRAINED} == expected


def test_without_defaults_nothing_changes() -> None:
    for preset in PRESETS:
        assert resolve_policy(preset, {}, defaults=policy_defaults({})) == resolve_policy(preset, {})
    assert resolve_policy(None, {}) == resolve_policy("handoff", {})


def test_another_preset_takes_the_guidance_and_keeps_its_own_gate_and_width() -> None:
    full = resolve_policy("full_cfg", {}, defaults=policy_defaults(DRAINED))
    assert (full.guidance_scale, full.order, full.plausibility) == (1.0, "conditional", 0.1)
    assert full.gate == GateSettings("never")
    assert (full.tail_width, full.tail_rule, full.tail_temperature) == (1, "top_k", None)
    wide = resolve_policy("parallel_tail", {}, defaults=policy_defaults(DRAINED))
    assert (wide.tail_width, wide.tail_rule, wide.tail_temperature) == (8, "spaced", 0.3)
    assert wide.gate == GateSettings()
    assert resolve_policy("base", {}, defaults=policy_defaults(DRAINED)) == resolve_policy("base", {})


def test_what_the_client_sets_stands() -> None:
    given = {"guidance_scale": 3.0, "order": "random", "tail_width": 1}
    policy = resolve_policy(None, given, defaults=policy_defaults(DRAINED))
    assert (policy.guidance_scale, policy.order, policy.tail_width, policy.tail_rule) == (3.0, "random", 1, "top_k")
    assert (policy.tail_schedule, policy.tail_mend) == ("constant", None)


def test_a_budget_is_not_broken_by_a_default_that_paces_the_tail() -> None:
    given = {"tail_width": 8, "budget_rows": 30, "repair": Repair()}
    policy = resolve_policy("handoff", given, defaults=policy_defaults(DRAINED))
    assert (policy.tail_rule, policy.tail_mend, policy.paced_by_tokens) == ("top_k", None, False)


def test_a_field_that_the_default_preset_does_not_use_asks_for_handoff() -> None:
    policy = resolve_policy(None, {"tail_width": 2}, defaults=policy_defaults({"preset": "auto"}))
    assert (policy.preset, policy.tail_width) == ("handoff", 2)
    assert resolve_policy(None, {"budget_rows": 40}, defaults=policy_defaults({"preset": "auto"})).preset == "auto"


GIVEN: dict[str, list[Any]] = {
    "guidance_scale": [0.5],
    "order": ["random", "confidence"],
    "tail_width": [1, 8],
    "gate": [
        GateSettings("never"),
        GateSettings("drained"),
        GateSettings("fraction", fraction=0.5),
        GateSettings("drained", recheck=4),
    ],
    "repair": [Repair()],
    "tail_threshold": [0.9],
}
WRITTEN = [DRAINED, {"preset": "base"}, {"preset": "full_cfg", "order": "conditional"}, {"preset": "auto"},
           {"tail_width": 8, "tail_rule": "best_of_run"}, {"gate": {"source": "never"}}]  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN, ids="-".join)
def test_defaults_never_make_a_request_fail_that_is_fine_without_them(written: dict[str, Any]) -> None:
    defaults = policy_defaults(written)
    tried = 0
    for preset, names in itertools.product((None, *PRESETS), itertools.combinations(GIVEN, 2)):
        for values in itertools.product(*(GIVEN[name] for name in names)):
            given = dict(zip(names, values, strict=True))
            try:
                resolve_policy(preset, given, gen_length=16)
            except PolicyError:
                continue
            policy = resolve_policy(preset, given, defaults=defaults, gen_length=16)
            assert isinstance(policy, DecodingPolicy)
            assert all(getattr(policy, name) == value for name, value in given.items())
            tried += 1
    assert tried > 50


@pytest.mark.parametrize(
    ("written", "param"),
    [
        ({"temperature": 1}, "temperature"),
        ({"preset": "best"}, "preset"),
        ({"gate": "drained"}, "gate"),
        ({"gate": {"sauce": 1}}, "gate"),
        ({"gate": {"source": "magic"}}, "gate.source"),
    ],
)
def test_what_is_no_policy_is_refused_by_its_name(written: dict[str, Any], param: str) -> None:
    with pytest.raises(PolicyError) as refused:
        policy_defaults(written)
    assert refused.value.param == param
