"""`evaluate`: learned gates as the server gives them, full CFG where it has none, and measured horizons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoding.gates.builtin import NeverGate
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.gate import GateSettings
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantGates
from gate_models.gates.calibrated.files import shipped_file
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.learned.gates import PolicyGate, RawGate, ValueGate
from gate_models.gates.resolver import LearnedGates
from gate_models.offline.benchmarks.tasks import TaskPrompt, load_task
from gate_models.offline.evaluation import jobs as evaluate_jobs
from gate_models.offline.evaluation import measured_horizons
from gate_models.offline.evaluation import run as evaluate
from gate_models.offline.evaluation.jobs import EvaluationJobs
from gate_models.offline.evaluation.measured_horizons import PromptHorizon, check_recorded, horizons_in
from gate_models.offline.evaluation.run import EvaluateSettings
from gate_models.offline.runs.result_file import table
from gate_models.policies.names import parse_policy
from service.config.settings import Settings
from service.generation.prepare import prepare
from service.schemas.generate import GenerateRequest
from tests.decoding.tiny import tiny_model
from tests.gate_models import synthetic_gates as gates

TASK = "commongen-k3"
SETTINGS = EvaluateSettings((TASK,), ("base",), n=3, threads=1)


@pytest.fixture(scope="module")
def bundle() -> GateBundle:
    return gates.bundle(tiny_model().spec.hash)


@pytest.fixture
def model(bundle: GateBundle, monkeypatch: pytest.MonkeyPatch) -> MiniModel:
    """The tiny model, with a gate for `TASK` in place of the package's."""
    tiny = tiny_model()
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: tiny)
    held = LearnedGates([bundle], ConstantGates(()), TextReader.of(tiny.spec, tiny.codec))
    monkeypatch.setattr(evaluate_jobs, "shipped_gates", lambda _: held)
    return tiny


@pytest.fixture
def prompts() -> list[TaskPrompt]:
    return load_task(TASK, 3)


@pytest.mark.parametrize(
    ("name", "gate", "width"),
    [
        ("raw", GateSettings("raw"), 1),
        ("policy:k8", GateSettings("policy"), 8),
        ("value", GateSettings("value"), 1),
        ("value:k8", GateSettings("value"), 8),
        ("value:0.002:k8", GateSettings("value", row_price=0.002), 8),
        ("value:.01", GateSettings("value", row_price=0.01), 1),
        ("risk:0.05:repair3x2", GateSettings("risk", margin=0.05), 1),
        ("recorded:k4", GateSettings("recorded"), 4),
    ],
)
def test_names(name: str, gate: GateSettings, width: int) -> None:
    policy = parse_policy(name).policy
    assert (policy.preset, policy.gate, policy.tail_width) == ("handoff", gate, width)


@pytest.mark.parametrize("name", ["value:2", "policy:0.3", "risk:1", "value:low"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        parse_policy(name)


@pytest.mark.parametrize(
    ("name", "kind", "asked"),
    [
        ("raw", RawGate, {"gate": {"source": "raw"}}),
        ("policy:k8", PolicyGate, {"gate": {"source": "policy"}, "tail_width": 8}),
        ("value:0.002:k8", ValueGate, {"gate": {"source": "value", "row_price": 0.002}, "tail_width": 8}),
        ("risk:0.12", ValueGate, {"gate": {"source": "risk", "margin": 0.12}}),
        ("policy:k4", NeverGate, {"gate": {"source": "policy"}, "tail_width": 4}),
        ("value:w3", NeverGate, {"gate": {"source": "value"}, "guidance_scale": 3.0}),
        ("value:guidance_boost", NeverGate, {"gate": {"source": "value"}, "order": "guidance_boost"}),
        (
            "value:repair3x1",
            ValueGate,
            {"gate": {"source": "value"}, "repair": {"reopen": 3, "max_rounds": 1}},
        ),
    ],
)
def test_a_learned_gate_is_the_servers(
    model: MiniModel, prompts: list[TaskPrompt], name: str, kind: type, asked: dict[str, Any]
) -> None:
    """Job by job what the server prepares for the same request; a fallback is full CFG in both, which a study names."""
    jobs = EvaluationJobs.of(model, parse_policy(name), SETTINGS)
    for prompt in prompts:
        own = jobs.job(prompt, 0)
        request = GenerateRequest.model_validate(
            {
                "prompt": prompt.text(),
                "constraint": prompt.constraint,
                "render_constraint": False,
                "gen_length": prompt.gen_length,
                "steps": prompt.steps,
                "policy": {"preset": "handoff", "on_fallback": "full_cfg", **asked},
            }
        )
        served = prepare(request, model, evaluate_jobs.shipped_gates(model), Settings())
        assert isinstance(own.gate, kind)
        assert replace(own, noise=served.job.noise, deadline=served.job.deadline) == served.job
        assert (served.fallback is not None) == (kind is NeverGate)
    fallen = jobs.fallback(prompts)
    assert (fallen is not None) == (kind is NeverGate)
    assert fallen is None or (fallen["prompts"] == 3 and "outside the audited regime" in fallen["reason"])


def test_all_texts_of_a_cell_share_one_gate(model: MiniModel, prompts: list[TaskPrompt]) -> None:
    """The engine asks a gate once a step for everyone; attempts have it too."""
    jobs = EvaluationJobs.of(model, parse_policy("value:best2"), SETTINGS)
    made = [jobs.job(prompt, sample) for prompt in prompts for sample in (0, 1)]
    assert len({id(attempt.gate) for job in made for attempt in job.attempts} | {id(job.gate) for job in made}) == 1


def test_a_cell_without_a_gate_says_so_and_is_full_cfg(model: MiniModel) -> None:
    one = replace(SETTINGS, policies=("full_cfg", "value:0", "value:k4", "policy:repair3x1"))
    task = evaluate.run(one)["tasks"][TASK]
    rows, samples = task["policies"], task["samples"]
    assert [(s["text"], s["rows"]) for s in samples["value:k4"]] == [
        (s["text"], s["rows"]) for s in samples["full_cfg"]
    ]
    assert rows["value:k4"]["fallback"]["prompts"] == 3
    assert "tail_width 4" in rows["value:k4"]["fallback"]["reason"]
    assert "fallback" not in rows["value:0"]
    shown = table(TASK, rows)
    assert "| value:k4 (falls back) |" in shown
    assert "Falls back to full CFG: value:k4: outside the audited regime" in shown


def test_the_gate_is_part_of_a_cell(
    model: MiniModel, prompts: list[TaskPrompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the family's gate makes another cell of whatever it serves, and of nothing else."""
    names = ("full_cfg", "value", "policy:k8", "constant", "value:k4")

    def texts() -> dict[str, str]:
        return {name: EvaluationJobs.of(model, parse_policy(name), SETTINGS).describe(prompts) for name in names}

    before = texts()
    held = evaluate_jobs.shipped_gates(model)
    newer = LearnedGates([replace(held.bundles[0], version="newer")], held.below, held.reader)
    monkeypatch.setattr(evaluate_jobs, "shipped_gates", lambda _: newer)
    changed = {name for name, text in texts().items() if text != before[name]}
    assert changed == {"value", "policy:k8", "constant"}


CENSUS = shipped_file("census")


@pytest.mark.skipif(not (CENSUS / "manifest.json").is_file(), reason="the package ships no census")
def test_a_measured_horizon_is_where_the_census_has_it(model: MiniModel) -> None:
    """Every prompt of the shipped census: handed off at its a*, or never; in no other setting."""
    measured = horizons_in(str(CENSUS))
    ((task, _), one), *_ = measured.items()
    own = {prompt.id: prompt for prompt in load_task(task)}
    known = [(own[prompt], horizon) for (other, prompt), horizon in measured.items() if other == task and prompt in own]
    model.spec = replace(model.spec, hash=one.regime.model_hash)
    settings = replace(SETTINGS, census=str(CENSUS))
    jobs = EvaluationJobs.of(model, parse_policy("recorded:k8"), settings)
    steps = [jobs.job(prompt, 0).gate.planned_step(prompt.steps) for prompt, _ in known]
    assert steps == [prompt.steps if horizon.step is None else horizon.step for prompt, horizon in known]
    assert len(set(steps)) > 2
    assert jobs.fallback([prompt for prompt, _ in known]) is None
    warm = EvaluationJobs.of(model, parse_policy("recorded"), replace(settings, temperature=0.6))
    with pytest.raises(ValueError, match=r"temperature 0\.6 \(census: 1\.0\)"):
        warm.job(known[0][0], 0)


def test_what_a_census_lacks_is_refused(
    prompts: list[TaskPrompt], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = {(TASK, prompts[0].id): PromptHorizon(gates.regime("hash"), 5)}
    monkeypatch.setattr(measured_horizons, "horizons_in", lambda _: held)
    named = [parse_policy("recorded:k8")]
    check_recorded(named, "census", {TASK: prompts[:1]})
    with pytest.raises(ValueError, match="no horizon for 2 of 3 prompts of commongen-k3"):
        check_recorded(named, "census", {TASK: prompts})
    with pytest.raises(ValueError, match="needs --census"):
        check_recorded(named, None, {TASK: prompts})
    with pytest.raises(ValueError, match="only used by policy 'recorded'"):
        check_recorded([parse_policy("value")], "census", {TASK: prompts})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="is no census"):
        check_recorded(named, str(tmp_path), {TASK: prompts})
