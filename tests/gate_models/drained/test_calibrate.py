"""The calibration of `drained` thresholds: read off one run for all, certified in a fixed sequence."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from decoding.engine.engine import Engine
from decoding.gates.builtin import DrainedGate
from decoding.gates.protocol import Regime
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from gate_models.gates.calibrated.drained import DrainedGates, DrainedThreshold, read_thresholds, write_thresholds
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.benchmarks.tasks import SUBTASKS, TaskPrompt
from gate_models.offline.drained import calibrate as own
from gate_models.offline.drained import table as drained_table
from gate_models.offline.drained.settings import CalibrationSettings
from gate_models.offline.gate_audit.sweep import drained_step, run_job, sweep
from gate_models.statistics.fixed_sequence import MARGINS
from service.cli import app
from tests.decoding.tiny import tiny_model

REGIME = Regime("hash", "commongen-k3", 2.0, 16, 16, 1, 1.0, None, "probability", "guidance_boost", "as_is")
PROMISED = {"0.01": None, "0.03": 0.2, "0.05": 0.4}
FOUND = DrainedThreshold(REGIME, 0.6, PROMISED, {"prompts": 90, "margin": 0.03})
DIFFUSE = dataclasses.replace(
    FOUND, regime=dataclasses.replace(REGIME, family="ccg-sentiment"), threshold=None, certified={"0.03": None}
)
PLAN = CalibrationSettings(("commongen-k3",), prompts=3, samples=2, seed=3, boost_threshold=0.05, guided_width=4)
PROMPTS = [
    TaskPrompt(f"p{i}", "commongen-k3", text, {"type": "keywords", "keywords": ["a", "b", "c"]}, 12, 12)
    for i, text in enumerate(("a b", "d e f", "x"))
]


def test_a_calibration_stands_beside_those_of_other_regimes(tmp_path: Path) -> None:
    path = tmp_path / "drained.json"
    assert own.beside([FOUND], path) == [FOUND]
    write_thresholds([FOUND, DIFFUSE], path)
    again = dataclasses.replace(FOUND, threshold=0.3)
    assert own.beside([again], path) == [DIFFUSE, again]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({0.1: 0.0, 0.3: 0.03, 0.5: 0.2}, 0.3),
        ({0.1: 0.0, 0.3: 0.05, 0.5: 0.0}, 0.5),
        ({0.1: 0.04, 0.3: 0.05}, None),
        ({0.1: -0.1, 0.3: -0.2}, 0.3),
    ],
)
def test_the_largest_threshold_that_loses_little_enough(losses: dict[float, float], expected: float | None) -> None:
    assert own.largest_within(losses, 0.03) == expected


def test_certificates_follow_the_fixed_sequence() -> None:
    none, some = np.zeros(400), np.r_[np.ones(60), np.zeros(340)]
    certified = own.certified({0.1: none, 0.3: none, 0.5: some, 0.7: none})
    assert certified["0.03"] == 0.3
    assert certified["0.01"] == 0.3
    assert certified[f"{MARGINS[-1]:g}"] == 0.3
    assert set(own.certified({0.1: some}).values()) == {None}


def test_no_prompt_of_the_audit_set_is_used() -> None:
    for task in SUBTASKS:
        prompts = own.prompts_of(task, 40)
        assert 0 < len(prompts) <= 40
        assert len({(prompt.gen_length, prompt.steps) for prompt in prompts}) == 1
        assert all(split_of(0, task, prompt.id) != "audit" for prompt in prompts)


@pytest.mark.parametrize("order", own.ORDERS)
def test_what_is_read_off_is_what_the_engine_does(order: str, tmp_path: Path) -> None:
    """The same noise, live: at every threshold the gate hands off where the recorded run says, and branches start."""
    model, settings = tiny_model(), own.sweep_settings(PLAN, order)
    runs = sweep(model, PROMPTS, settings, tmp_path / "sweep.jsonl")
    engine, asked = Engine(model), []
    for run in runs:
        job = run_job(model, run.prompt, run.sample, settings)
        given = {name: getattr(job.policy, name) for name in ("guidance_scale", "order", "guided_width")}
        for theta in settings.thresholds:
            policy = resolve_policy(
                "handoff", given | {"boost_threshold": job.policy.boost_threshold, "gate": GateSettings("drained")}
            )
            live = engine.submit(dataclasses.replace(job, policy=policy, gate=DrainedGate(theta)))
            asked.append((run, theta, live))
    while engine.step():
        pass
    regime = dataclasses.replace(REGIME, gen_length=12, steps=12)
    handed = 0
    for run, theta, live in asked:
        step = drained_step(run.trace, theta, regime)
        outcome = live.result()
        assert outcome.handoff_step == (step if step < len(run.trace.steps) else None)
        if outcome.handoff_step is not None:
            handed += 1
            assert run.branches[1, step].rows == outcome.ledger.total
    assert handed
    assert all(
        step in {drained_step(run.trace, t, regime) for t in settings.thresholds}
        for run in runs
        for _, step in run.branches
    )


def test_calibration_gives_a_threshold_for_every_order_and_width(tmp_path: Path) -> None:
    model = tiny_model()
    plan = dataclasses.replace(PLAN, prompts=2, samples=1)
    thresholds = own.calibrate(model, plan, tmp_path)
    assert [(one.regime.order, one.regime.tail_width) for one in thresholds] == [
        (order, width) for order in own.ORDERS for width in own.WIDTHS
    ]
    for one in thresholds:
        assert one.regime.family == "commongen-k3"
        assert one.regime.boost_threshold == (None if one.regime.order == "confidence" else 0.05)
        points = one.evidence["curve"]
        assert list(points) == [f"{theta:g}" for theta in own.THRESHOLDS]
        assert all(p["rows"] <= 2 * one.regime.steps for p in points.values())
        rows = [point["rows"] for point in points.values()]
        serial = one.regime.tail_width == 1 and one.regime.order == "confidence"
        assert not serial or rows == sorted(rows, reverse=True)
    assert own.calibrate(model, dataclasses.replace(plan, prompts=None), tmp_path) == thresholds
    with pytest.raises(ValueError, match="no prompt of task 'ccg-length'"):
        own.calibrate(model, dataclasses.replace(plan, tasks=("ccg-length",), prompts=None), tmp_path)
    resolved = DrainedGates(tuple(thresholds)).resolve(GateSettings("drained"), thresholds[0].regime)
    assert (resolved.gate is None) == (thresholds[0].threshold is None)


def test_the_command_line_sets_what_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight and temperature reach the regime; what the file held of other regimes stays."""
    monkeypatch.setattr(own, "load_model", lambda *_: tiny_model())
    monkeypatch.setattr(own, "prompts_of", lambda *_: PROMPTS[:1])
    out = tmp_path / "drained.json"
    write_thresholds([FOUND], out)
    given = ["--families", "commongen-k3", "--sweeps", str(tmp_path), "--out", str(out)]
    answer = CliRunner().invoke(
        app, ["drained", "calibrate", *given, "--guidance-scale", "1.5", "--temperature", "0.7"]
    )
    assert answer.exit_code == 0, answer.output
    kept, *fresh = read_thresholds(out)
    assert kept == FOUND
    assert len(fresh) == len(own.ORDERS) * len(own.WIDTHS)
    assert {(one.regime.guidance_scale, one.regime.temperature) for one in fresh} == {(1.5, 0.7)}
    assert {(one.regime.guided_width, one.regime.boost_threshold) for one in fresh} == {(1, None), (8, 0.8)}


def test_the_table_shows_the_cheapest_width_that_keeps_the_loss_and_never() -> None:
    def point(loss: float, rows: float) -> dict[str, object]:
        return {"loss": loss, "loss_interval_95": [loss - 0.1, loss + 0.1], "rows": rows, "perplexity": 90.0}

    def one(order: str, width: int, threshold: float | None, rows: float, loss: float) -> DrainedThreshold:
        regime = dataclasses.replace(REGIME, order=order, tail_width=width)
        full = {"success": 0.9, "rows": 32.0, "perplexity": 80.0}
        return DrainedThreshold(
            regime, threshold, {}, {"prompts": 50, "full_cfg": full, "curve": {"0.5": point(loss, rows)}}
        )

    settings = [one("confidence", 1, 0.5, 22.0, 0.0), one("confidence", 4, 0.5, 15.0, 0.02)]
    shown = drained_table.table([*settings, one("guidance_boost", 4, None, 10.0, 0.08)])
    assert "| commongen-k3 | 50 | 0.90, 32, 80 | 4, 0.5, +0.02 [-0.08, +0.12], 15.0, 90 |" in shown
    assert "never (smallest loss +0.08)" in shown
    assert drained_table.table(settings[:1]).endswith("| not measured |")
