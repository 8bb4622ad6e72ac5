"""Preset `auto` with learned gates among its attempts: the shipped ones, where they serve, and what the answer says."""

from __future__ import annotations

import pytest

from decoding.gates.builtin import BuiltinGates
from gate_models.gates.shipped import shipped_gates
from gate_models.gates.sources import needs_family
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.policies.cascade import AttemptOrder, Cascades, read_cascades, shipped_path
from gate_models.policies.names import parse_policy
from service.commands.run import local
from service.config.settings import Settings
from service.generation import prepare as translate
from service.schemas.generate import GenerateRequest
from tests.shipped import mini

FAMILY = "commongen-k3"
BODY = {"constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]}, "seed": 3, "n": 8}


@pytest.fixture
def learned_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = AttemptOrder(FAMILY, mini().spec.hash, ("value:k8:repair3x2", "full_cfg:repair3x4", "full_cfg:repair3x4"))
    monkeypatch.setattr(translate, "shipped_cascades", lambda: Cascades((plan,)))


def test_an_attempt_is_handed_off_by_the_family_s_gate(learned_first: None) -> None:
    answer = local.decode({**BODY, "policy": {"preset": "auto"}})
    repairs = [(sample, sample["repair"]) for sample in answer["samples"]]
    first = [sample for sample, repair in repairs if repair["passes"][repair["kept"]]["attempt"] == 0]
    assert first
    for sample in first:
        assert sample["gate"]["source"] == "value"
        assert sample["gate"]["version"] not in (None, "builtin")
    assert any(sample["gate"]["decision"] == "handoff" for sample in first)
    for sample in answer["samples"]:
        assert sample["forward_evaluations"]["total"] <= answer["policy"]["budget_rows"] == 64
    traced = local.decode({**BODY, "policy": {"preset": "auto"}, "trace": True})
    assert [sample["text"] for sample in traced["samples"]] == [sample["text"] for sample in answer["samples"]]


@pytest.mark.parametrize("body", [{"gen_length": 20}, {"policy": {"preset": "auto", "guidance_scale": 3.0}}])
def test_elsewhere_the_attempt_is_left_out(learned_first: None, body: dict[str, object]) -> None:
    """No gate was audited on that canvas, or at that scale; with none at all the same happens."""
    whole = BODY | {"policy": {"preset": "auto"}} | body
    sources = [sample["gate"]["source"] for sample in local.decode(whole)["samples"]]
    assert sources == ["never"] * 8
    job = translate.prepare(
        GenerateRequest.model_validate({**BODY, "policy": {"preset": "auto"}}), mini(), BuiltinGates(), Settings()
    ).job
    assert [attempt.policy.preset for attempt in job.attempts] == ["full_cfg", "full_cfg"]


def test_the_shipped_orders_leave_no_gate_open_that_is_not_served() -> None:
    """On the canvas that a family's requests get by default every attempt is tried."""
    model, gates = mini(), shipped_gates(mini())
    for plan in read_cascades(shipped_path()).plans:
        policies = [parse_policy(name).policy for name in plan.attempts]
        asked = {"constraint": load_task(plan.family, 1)[0].constraint, "policy": {"preset": "auto"}}
        job = translate.prepare(GenerateRequest.model_validate(asked), model, gates, Settings()).job
        wanted = {policy.gate.source for policy in policies if needs_family(policy.gate)}
        assert wanted <= {attempt.gate.source for attempt in job.attempts}, plan.family


def test_every_family_serves_a_budget_that_base_decoding_fits() -> None:
    model, gates = mini(), shipped_gates(mini())
    for plan in read_cascades(shipped_path()).plans:
        prompt = load_task(plan.family, 1)[0]
        asked = {
            "constraint": prompt.constraint,
            "gen_length": prompt.gen_length,
            "steps": prompt.steps,
            "policy": {"preset": "auto", "budget_rows": prompt.steps},
        }
        job = translate.prepare(GenerateRequest.model_validate(asked), model, gates, Settings()).job
        assert job.attempt(0).first_pass_rows <= prompt.steps, plan.family


def test_a_small_budget_is_kept() -> None:
    answer = local.decode({**BODY, "policy": {"preset": "auto", "budget_rows": 20}})
    assert all(16 <= sample["forward_evaluations"]["total"] <= 20 for sample in answer["samples"])
