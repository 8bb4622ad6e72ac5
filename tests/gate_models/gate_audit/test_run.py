"""The audit's sweep and what is read off it: resumable, paired, and what the engine would have done."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from decoding.engine.engine import Engine
from decoding.gates.builtin import DrainedGate, FractionGate, NeverGate
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.learned.gates import PolicyGate, RawGate, ValueGate
from gate_models.offline.benchmarks.tasks import TaskPrompt
from gate_models.offline.gate_audit.accuracy import cross_validated
from gate_models.offline.gate_audit.arms import Arms, arms_at, decided_steps, never_arms
from gate_models.offline.gate_audit.report import plot, source_table
from gate_models.offline.gate_audit.results import at_same_rows, results
from gate_models.offline.gate_audit.sources import all_arms
from gate_models.offline.gate_audit.sweep import SweepSettings, run_job, sweep, sweep_steps
from gate_models.offline.gate_training.dataset import rows_of
from gate_models.offline.scorers.fluency import Fluency, load_judge
from tests.decoding.tiny import tiny_model
from tests.gate_models import synthetic_gates as gates

LENGTH = 16
PROMPTS = [
    TaskPrompt(f"p{i}", "commongen-k3", text, {"type": "keywords", "keywords": ["a", "b", "c"]}, LENGTH, LENGTH)
    for i, text in enumerate(("a b", "d e f", "x"))
]
SETTINGS = SweepSettings(samples=2, seed=5, widths=(1, 8))


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def held(model):
    return gates.bundle(model.spec.hash, length=LENGTH)


@pytest.fixture(scope="module")
def swept(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "sweep.jsonl"
    return sweep(model, PROMPTS, SETTINGS, path), path


def test_a_sweep_that_was_stopped_goes_on_and_one_of_other_settings_is_refused(model, swept, tmp_path):
    runs, path = swept
    assert [(run.prompt.id, run.sample) for run in runs] == [(p.id, s) for p in PROMPTS for s in range(2)]
    lines = path.read_text().splitlines(keepends=True)
    half = tmp_path / "half.jsonl"
    half.write_text("".join(lines[:3]) + lines[3][:40])  # header, two runs, one cut off
    again = sweep(model, PROMPTS, SETTINGS, half)
    assert [run.guided for run in again] == [run.guided for run in runs]
    assert [run.branches for run in again] == [run.branches for run in runs]
    with pytest.raises(ValueError, match="other settings"):
        sweep(model, PROMPTS, dataclasses.replace(SETTINGS, seed=6), path)


def test_rows_of_branches_are_those_of_the_policy(swept, held):
    runs, _ = swept
    data = gates.family_data(length=LENGTH)
    for run in runs:
        assert run.guided.rows == 2 * LENGTH
        for (width, step), text in run.branches.items():
            assert text.rows == data.rows(width, step)
        assert run.wide[8].rows == 2 * LENGTH // 8
        assert {step for _, step in run.branches} == set(sweep_steps(SETTINGS, LENGTH))


def learned(held, model):
    common = (held.version, held.checkpoints, TextReader.of(model.spec, model.codec))
    yield FractionGate(0.3)
    yield NeverGate()
    yield DrainedGate(0.5)
    yield RawGate(*common, held.horizons)
    yield PolicyGate(*common, held.fates, held.horizons, 0.7)
    yield ValueGate(*common, held.values[1], 0.002)
    yield ValueGate(*common, held.values[1], 0.05, 0.5)


@pytest.mark.parametrize("index", range(7))
def test_what_is_read_off_is_what_the_engine_does(model, swept, held, index):
    """The same noise, live: the gate hands off at the step that the audit says."""
    runs, _ = swept
    gate = list(learned(held, model))[index]
    read = decided_steps(runs, gate, held.regime.lowest(1))
    engine = Engine(model)
    jobs = []
    for run in runs:
        recorded = run_job(model, run.prompt, run.sample, SETTINGS)
        policy = resolve_policy("handoff", {"gate": GateSettings("raw"), "guidance_scale": 2.0})
        jobs.append(dataclasses.replace(recorded, policy=policy, gate=gate, constraint=run.prompt.constraint))
    handles = engine.submit_all(jobs)
    while engine.step():
        pass
    live = [handle.result().handoff_step for handle in handles]
    assert [LENGTH if step is None else step for step in live] == read.tolist()


def test_sources_tables_and_plot(model, swept, held, tmp_path):
    runs, _ = swept
    reader = TextReader.of(model.spec, model.codec)
    data = dataclasses.replace(gates.family_data(model.spec.hash, length=LENGTH), prompts=_named(120))
    arms = all_arms(runs, held, reader, (1, 8), SETTINGS.gates, data)
    measured = results(arms, Fluency(load_judge()))
    names = {result.source for result in measured if result.width == 8}
    assert {"full_cfg", "oracle", "constant", "raw", "policy", "value 0.002", "risk 0.03", "raw whole-run"} <= names
    by = {(result.source, result.width): result for result in measured}
    assert by["full_cfg", 1].rows == 2 * LENGTH
    assert by["full_cfg", 1].handed_off == 0.0
    assert by["fixed 0", 1].rows == LENGTH
    assert by["constant", 8].differs == 0.0
    assert by["constant", 8].against["constant"].value == 0.0
    assert by["raw whole-run", 8].rows >= 2 * LENGTH + by["fixed 0", 8].rows
    table = source_table(measured, 8)
    assert table.count("\n") > 10
    assert "| policy |" in table
    plot(measured, "test", tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def _named(count):
    return tuple(p.id for p in PROMPTS) + tuple(f"q{i}" for i in range(count - len(PROMPTS)))


def test_a_fixed_cut_is_on_its_own_frontier(swept):
    runs, _ = swept
    fixed = [arms_at(runs, f"fixed {g}", 1, np.full(len(runs), step)) for g, step in ((0.1, 2), (0.3, 5), (0.6, 10))]
    ends = [*fixed, never_arms(runs, 1)]
    for arms in ends:
        assert at_same_rows(arms, ends).value == pytest.approx(0.0, abs=1e-12)


def test_a_gate_that_only_knows_the_family_gains_nothing_at_equal_rows():
    """Two families that need other cuts: the rival of each is its own best schedule, not one cut for both."""
    family = np.repeat([0, 1], 40)
    early = made("fixed 0.2", rows=20.0, success=family == 0)  # enough for the first family alone
    late = made("fixed 0.8", rows=30.0, success=np.ones(80, dtype=bool))
    knowing = made("gate", rows=np.where(family == 0, 20.0, 30.0), success=np.ones(80, dtype=bool))
    assert at_same_rows(knowing, [early, late]).value == pytest.approx(0.25)
    assert at_same_rows(knowing, [early, late], family).value == pytest.approx(0.0)


def made(source, *, rows, success):
    """Arms of 80 runs, one a prompt."""
    count = np.arange(80)
    return Arms(
        source, 1, prompt=count, step=count, success=np.asarray(success, dtype=float), texts=("",) * 80,
        rows=np.broadcast_to(np.asarray(rows, dtype=float), 80).copy(), repeats=np.zeros(80, dtype=bool),
    )  # fmt: skip


def test_accuracy_is_cross_validated_and_beats_chance_where_there_is_a_signal():
    data = gates.family_data(prompts=150)
    accuracy = cross_validated(rows_of(data, whole=False), "causal", trees=20)
    assert accuracy.fate is not None
    assert accuracy.fate > 0.9 > accuracy.fate_of_mode
    blind = cross_validated(rows_of(data, whole=False), "blind", groups=["entropy"], trees=20)
    assert blind.fate < 0.8
    few = gates.family_data(prompts=8)
    assert cross_validated(rows_of(few, whole=False), "few", trees=10).tercile is None
