"""`evaluate`: canvases of one's own, ablations, and policies at a family's calibrated threshold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from decoding.gates.builtin import DrainedGate, NeverGate
from decoding.models.bert_mini.network import MiniModel
from decoding.request.job import regime_of
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates
from gate_models.gates.calibrated.drained import DrainedGates, DrainedThreshold
from gate_models.gates.resolver import LearnedGates
from gate_models.offline.benchmarks.tasks import load_task
from gate_models.offline.evaluation import jobs
from gate_models.offline.evaluation import run as evaluate
from gate_models.offline.evaluation.jobs import EvaluationJobs
from gate_models.offline.evaluation.run import EvaluateSettings
from gate_models.policies import cascade
from gate_models.policies.cascade import AttemptOrder, Cascades
from gate_models.policies.names import parse_policy
from tests.decoding.tiny import tiny_model
from tests.shipped import mini

SETTINGS = EvaluateSettings(("few-keywords",), ("base",), n=2, threads=1)


def hold(monkeypatch: pytest.MonkeyPatch, held: ConstantGates) -> None:
    """The calibrated gates alone, none learned."""
    monkeypatch.setattr(
        jobs, "shipped_gates", lambda model: LearnedGates((), held, TextReader.of(model.spec, model.codec))
    )


def test_own_canvas_and_ablation_are_results_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A started word goes first in a guided order; without that rule other texts come of the same noise."""
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: tiny_model())
    one = replace(SETTINGS, tasks=("few-keywords",), policies=("full_cfg:guidance_boost",), canvas=8, samples=2)
    plain = evaluate.run(one, tmp_path / "plain.json")
    ablated = [
        evaluate.run(replace(one, without=(name,)), tmp_path / f"{name}.json")
        for name in ("whole_words", "text_margins")
    ]
    cells = [result["tasks"]["few-keywords"] for result in (plain, *ablated)]
    assert [cell["policies"]["full_cfg:guidance_boost"]["rows_per_sample"] for cell in cells] == [16.0, 16.0, 16.0]
    assert len({cell["identity"]["full_cfg:guidance_boost"] for cell in cells}) == 3
    with pytest.raises(ValueError, match="whole_words, text_margins can"):
        replace(SETTINGS, without=("fluency",))


def test_a_calibrated_policy_is_served_as_the_server_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the family's threshold where the setting was measured; where it does not drain, guidance to the end."""
    own = mini()
    prompt = load_task("commongen-k3", 1)[0]
    named = parse_policy("calibrated:guidance_boost:b0.8:k2")
    regime = regime_of(EvaluationJobs.of(own, named, SETTINGS).job(prompt, 0), own.spec.hash)
    for threshold, gate in ((0.35, DrainedGate(0.35, version="drained-1")), (None, NeverGate())):
        hold(monkeypatch, ConstantGates((), DrainedGates((DrainedThreshold(regime, threshold),))))
        job = EvaluationJobs.of(own, named, SETTINGS).job(prompt, 0)
        assert (job.gate, job.policy.order) == (gate, "confidence" if threshold is None else "guidance_boost")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> MiniModel:
    tiny = tiny_model()
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: tiny)
    return tiny


def test_prompts_of_some_sets_alone(model: MiniModel) -> None:
    """The sets part the prompts; a set that is empty among them is refused, as is one that does not exist."""
    named = {
        name: {p.id for p in evaluate.prompts_of("ifeval-no-comma", replace(SETTINGS, n=60, splits=(name,)))}
        for name in ("train", "calibrate", "audit")
    }
    assert sum(map(len, named.values())) == len(set().union(*named.values())) == 60
    assert all(named.values())
    settings = replace(SETTINGS, tasks=("ifeval-no-comma",), policies=("base",), n=60, splits=("audit",), samples=1)
    decoded = evaluate.run(settings)["tasks"]["ifeval-no-comma"]["samples"]["base"]
    assert {sample["prompt_id"] for sample in decoded} == named["audit"]
    with pytest.raises(ValueError, match="unknown"):
        replace(SETTINGS, splits=("test",))
    first = load_task("ifeval-no-comma", 1)[0].id
    others = tuple(name for name, ids in named.items() if first not in ids)
    with pytest.raises(ValueError, match="no prompt in"):
        evaluate.prompts_of("ifeval-no-comma", replace(SETTINGS, n=1, splits=others))


def test_a_constant_policy_takes_the_cut_of_its_family(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = load_task("ifeval-letter-freq", 1)[0]
    named = parse_policy("constant:repair3x1")
    regime = regime_of(EvaluationJobs.of(model, named, SETTINGS).job(prompt, 0), model.spec.hash)
    for fraction, step in ((0.5, prompt.steps // 2), (None, prompt.steps)):
        hold(monkeypatch, ConstantGates((ConstantCut(regime, fraction),)))
        assert EvaluationJobs.of(model, named, SETTINGS).job(prompt, 0).gate.planned_step(prompt.steps) == step
    hold(monkeypatch, ConstantGates(()))
    assert EvaluationJobs.of(model, named, SETTINGS).job(prompt, 0).gate.planned_step(prompt.steps) == prompt.steps
    hold(monkeypatch, ConstantGates((ConstantCut(regime, 0.5),)))
    best = EvaluationJobs.of(model, parse_policy("constant:best2"), SETTINGS).job(prompt, 0)
    assert [attempt.gate.planned_step(prompt.steps) for attempt in best.attempts] == [prompt.steps // 2] * 2


def test_what_a_cascade_tries_is_part_of_a_cell(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths are cut to the canvas: two orders that differ only beyond it are one."""
    prompts = load_task("ifeval-letter-freq", 1)
    length = prompts[0].gen_length

    def text(*attempts: str) -> str:
        cascades = Cascades((AttemptOrder("ifeval-letter-freq", model.spec.hash, attempts),))
        monkeypatch.setattr(cascade, "shipped_cascades", lambda: cascades)
        return EvaluationJobs.of(model, parse_policy("auto:90"), SETTINGS).describe(prompts)

    assert text("base:k60") == text(f"base:k{length}") != text("base:k2")
