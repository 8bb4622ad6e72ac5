"""Preset `auto`: the order is learned greedily, kept per family and model, and decoded as named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoding.gates.builtin import FractionGate
from decoding.gates.protocol import GateResolution, Regime
from decoding.policy.gate import GateSettings
from decoding.request.job import Job, RecordLevel
from decoding.request.row_estimates import most_rows
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.offline.deployment import learn_cascade
from gate_models.offline.deployment.learn_cascade import Candidate, candidate, greedy_order, learn, rounds
from gate_models.offline.evaluation.run import EvaluateSettings, decode
from gate_models.policies.cascade import (
    UNMEASURED,
    AttemptOrder,
    Cascades,
    affordable,
    attempts_of,
    read_cascades,
    resolve_attempt_gates,
    within_budget,
    write_cascades,
)
from gate_models.policies.names import parse_policy
from tests.decoding.tiny import job, tiny_model


def sample(prompt: str, satisfied: bool, rows: int = 10, **more: Any) -> dict[str, Any]:
    return {"prompt_id": prompt, "satisfied": satisfied, "rows": rows, **more}


def test_the_order_pays_most_for_each_row() -> None:
    cheap = Candidate("cheap", np.array([0.9, 0.9, 0.0, 0.0]), rows=10.0)
    dear = Candidate("dear", np.array([0.9, 0.9, 0.9, 0.9]), rows=30.0)
    assert greedy_order([dear, cheap], 3) == ("cheap", "dear", "dear")
    assert greedy_order([cheap], 2) == ("cheap", "cheap")
    with pytest.raises(ValueError, match="no policy"):
        greedy_order([], 1)


def test_a_lucky_sample_is_no_certainty() -> None:
    attempt = candidate("base", [sample("a", True), sample("b", True)], ["a", "b"])
    assert attempt.rates.max() < 1.0
    with pytest.raises(ValueError, match="no sample of b"):
        candidate("base", [sample("a", True)], ["a", "b"])


def result(tmp: Path) -> Path:
    cells = {
        "base": [sample("a", True, 16), sample("b", False, 16)],
        "full_cfg": [sample("a", True, 32), sample("b", True, 32)],
        "base:best2": [
            sample("a", True, 16, history=[[16, True, ""]]),
            sample("b", False, 32, history=[[16, False, ""], [32, False, ""]]),
        ],
    }
    policies = {
        name: {
            "success": sum(s["satisfied"] for s in samples) / 2,
            "rows_per_sample": sum(s["rows"] for s in samples) / 2,
            "fluency": {"perplexity": 300.0 if name == "base" else 100.0},
        }
        for name, samples in cells.items()
    }
    tasks = {task: {"policies": policies, "samples": cells} for task in ("commongen-k3", "ccg-length", "few-keywords")}
    path = tmp / "result.json"
    path.write_text(json.dumps({"seed": 3, "model": "tiny", "model_hash": "h", "tasks": tasks}))
    return path


def test_plans_are_learned_written_and_never_borrowed(tmp_path: Path) -> None:
    out = tmp_path / "cascades.json"
    write_cascades(
        Cascades((AttemptOrder("collie-c07", "h", ("base",)), AttemptOrder("ccg-length", "h", ("base",)))), out
    )
    learn_cascade.run(result(tmp_path), out, length=2)
    cascades = read_cascades(out)
    assert {plan.family for plan in cascades.plans} == {"collie-c07", "ccg-length", "commongen-k3"}
    assert cascades.plan("commongen-k3", "h") == ("base", "full_cfg")
    assert cascades.plan("commongen-k3", "another model") == cascades.plan(None, "h") == UNMEASURED
    evidence = next(plan.evidence for plan in cascades.plans if plan.family == "commongen-k3")
    assert evidence["seed"] == 3
    assert set(evidence["measured"]) == {"base", "full_cfg"}


def test_a_fluency_bound_keeps_bad_texts_out(tmp_path: Path) -> None:
    document = json.loads(result(tmp_path).read_text())
    assert {name for plan in learn(document, fluency_factor=1.5) for name in plan.attempts} == {"full_cfg"}
    del document["tasks"]["commongen-k3"]["samples"]["full_cfg"]
    with pytest.raises(ValueError, match="full_cfg"):
        learn(document, fluency_factor=1.5)


def test_fewer_rounds_are_read_off_a_run_with_more() -> None:
    """A run of four rounds holds the policy without repair and with two; a run of its own is kept as it is."""
    texts = [(16, False, "x"), (22, False, "y"), (28, False, "z"), (34, True, "won")]
    cells: dict[str, Any] = {
        "base:repair3x4": [sample("a", True, 34, history=texts), sample("b", True, 16, history=[(16, True, "u")])],
        "base:repair3x4-random": [sample("a", True, 16, history=[(16, True, "")])],
        "base:best2": [sample("a", True, 16, history=[(16, True, "")])],
        "auto": [sample("a", True, 16, history=[(16, True, "")])],
    }
    shortened = rounds(cells)
    assert {name: [(one["satisfied"], one["rows"]) for one in samples] for name, samples in shortened.items()} == {
        "base": [(False, 16), (True, 16)],
        "base:repair3x2": [(False, 28), (True, 16)],
        "base:repair3x4": [(True, 34), (True, 16)],
        "base:repair3x2-random": [(True, 16)],
        "base:repair3x4-random": [(True, 16)],
    }
    for name in shortened:
        parse_policy(name)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cascades.json"

    def plan(name: str) -> str:
        plan = {"family": "ccg-length", "model_hash": "h", "attempts": [name], "evidence": {}}
        return json.dumps({"format": 1, "plans": [plan]})

    for content in ("{", '{"format": 9}', plan("teleport"), plan("recorded")):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"cascades\.json"):
            read_cascades(path)


def test_attempts_fit_the_canvas_and_take_another_scale() -> None:
    cascades = Cascades((AttemptOrder("ccg-length", "h", ("base", "handoff:0.2:k8", "full_cfg:b0.1:guidance_boost")),))
    base, handoff, boosted = cascades.attempts("ccg-length", "h", 4, guidance_scale=3.5)
    assert (base.policy.guidance_scale, handoff.policy.guidance_scale) == (0.0, 3.5)
    assert handoff.policy.tail_width == boosted.policy.guided_width == 4
    assert handoff.gate.planned_step(10) == 2


class Held:
    """One learned gate, of one canvas and scale."""

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        if setting.source == "value" and (regime.gen_length, regime.guidance_scale) == (16, 2.0):
            return GateResolution(replace(FractionGate(0.25), source="value", needs_stats=True))
        return GateResolution(None, "none in this setting")


def open_job(length: int, scale: float, *names: str, record: RecordLevel = "commits") -> Job:
    cascades = Cascades((AttemptOrder("x", "h", names),))
    auto = replace(parse_policy("auto").policy, guidance_scale=scale)
    attempts = cascades.attempts("x", "h", length, scale)
    return replace(job(tiny_model(), length=length, record=record), family="x", policy=auto, attempts=attempts)


def test_attempts_that_leave_their_gate_open_get_the_family_s() -> None:
    """Served in the setting that it was measured in, with what it reads kept in the trace; elsewhere left out."""
    names = ("value:k8:repair3x2", "base", "policy", "drained:0.7:k4")
    resolved = resolve_attempt_gates(open_job(16, 2.0, *names), Held(), "h")
    assert [attempt.gate.source for attempt in resolved.attempts] == ["value", "never", "drained"]
    assert resolved.attempts[0].gate.planned_step(16) == 4
    assert resolved.record == "gate"
    assert resolve_attempt_gates(open_job(16, 2.0, *names, record="stats"), Held(), "h").record == "fill"
    for length, scale in ((12, 2.0), (16, 3.0)):
        resolved = resolve_attempt_gates(open_job(length, scale, *names), Held(), "h")
        assert [attempt.gate.source for attempt in resolved.attempts] == ["never", "drained"]
        assert resolved.record == "commits"


def test_where_no_attempt_is_served_the_general_order_is_tried() -> None:
    resolved = resolve_attempt_gates(open_job(12, 3.0, "value:k8", "policy"), Held(), "h")
    assert resolved.attempts == Cascades().attempts(None, "h", 12, 3.0)
    assert {attempt.policy.guidance_scale for attempt in resolved.attempts} == {3.0}


@pytest.mark.parametrize(("budget", "kept"), [(None, [0, 1, 2]), (40, [0, 1, 2]), (20, [1, 2]), (16, [1])])
def test_attempts_that_the_whole_budget_cannot_hold_are_left_out(budget: int | None, kept: list[int]) -> None:
    cascades = Cascades((AttemptOrder("x", "h", ("full_cfg", "base", "handoff:0.2")),))
    auto = replace(parse_policy("auto").policy, budget_rows=budget)
    asked = replace(job(tiny_model(), length=16), policy=auto, attempts=cascades.attempts("x", "h", 16))
    assert affordable(asked).attempts == tuple(asked.attempts[index] for index in kept)


@pytest.mark.parametrize("budget", [10, 16, 20])
def test_a_budget_that_no_attempt_fits_goes_to_base_decoding(budget: int) -> None:
    """Guidance first may stay guided: 32 rows at most, on a canvas that base decoding fills with 16."""
    cascades = Cascades((AttemptOrder("x", "h", ("drained:0.7:guidance_boost:b0.8:k4", "full_cfg")),))
    auto = replace(parse_policy("auto").policy, budget_rows=budget)
    asked = replace(job(tiny_model(), length=16), policy=auto, attempts=cascades.attempts("x", "h", 16))
    (attempt,) = affordable(asked).attempts
    assert (attempt.policy.preset, attempt.policy.guidance_scale) == ("base", 0.0)
    assert attempt.policy.repair is not None
    assert affordable(asked).attempt(0).first_pass_rows == 16


@pytest.mark.parametrize("steps", [16, 20, 24, 32, 48, 64, 128])
def test_the_general_order_comes_to_full_guidance_within_the_default_budget(steps: int) -> None:
    asked = replace(job(tiny_model(), length=16, steps=steps), policy=parse_policy("auto").policy)
    asked = replace(asked, attempts=Cascades().attempts(None, "h", 16))
    budget = within_budget(asked).budget_rows
    assert budget is not None
    first, second = asked.attempt(0), asked.attempt(1)
    assert first.policy.guidance_scale == second.policy.guidance_scale > 0
    assert second.policy.never_base
    assert most_rows(first) + second.first_pass_rows <= budget == 4 * steps


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("auto:many", "needs a number"),
        ("auto:64:k8", "not used by preset 'auto'"),
        ("full_cfg:repair3x2-luck", "must be one of"),
        ("full_cfg:rows9", "only used with repair"),
        ("full_cfg:repair0x2", "at least 1"),
    ],
)
def test_names_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_policy(name)


def test_names_of_repair() -> None:
    named = parse_policy("handoff:0.3:k4:repair5x3-random@.5:rows90")
    assert named.policy.repair is not None
    assert named.policy.budget_rows == 90
    repair = named.policy.repair
    assert (repair.reopen, repair.max_rounds, repair.selector, repair.anchor) == (5, 3, "random", 0.5)
    assert len(attempts_of(parse_policy("full_cfg:best3"), None, "h", 16)) == 3
    assert attempts_of(parse_policy("full_cfg"), None, "h", 16) == ()


def test_evaluation_decodes_attempts_and_remembers_every_text() -> None:
    model, prompts = tiny_model(), load_task("ifeval-letter-freq", 3)
    settings = EvaluateSettings(("ifeval-letter-freq",), ("base",), samples=1)
    for name, most in (("full_cfg:best3", 3), ("auto:90", 8), ("auto", 8), ("handoff:0.3:repair2x2", 3)):
        decoded, _ = decode(model, parse_policy(name), prompts, settings, name)
        for sample in decoded:
            assert 1 <= len(sample.history) <= most
            assert sample.history[-1][0] == sample.rows
            assert sample.satisfied is any(satisfied for _, satisfied, _ in sample.history)
            assert not any(satisfied for _, satisfied, _ in sample.history[:-1])
