"""The repair census on a tiny random model: populations and anchors, arms, audits, resumption, tables."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoding.models.bert_mini.network import MiniModel
from gate_models.offline.benchmarks.tasks import TaskPrompt
from gate_models.offline.census.labels import counts_of
from gate_models.offline.census.plan import plan
from gate_models.offline.census.records import CensusError
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.store import load_census, write_shard
from gate_models.offline.census.worker import decode_items
from gate_models.offline.repair_census import gains
from gate_models.offline.repair_census import report as repair_report
from gate_models.offline.repair_census import run as repair_census
from gate_models.offline.repair_census.arms import CONTROL, Anchored, anchors_of, population_of
from gate_models.offline.repair_census.lesion import competitor, lesion_unit
from gate_models.offline.repair_census.run import RepairCensus
from gate_models.offline.repair_census.settings import RepairCensusSettings
from gate_models.offline.repair_census.store import read_units
from gate_models.offline.repair_census.units import RepairUnit, fresh_job, frozen_runs, units_of
from gate_models.offline.runs.result_file import write_json
from tests.decoding.tiny import job, tiny_model

SETTINGS = RepairCensusSettings(("ifeval-letter-freq",), prompts=2, seeds=1, continuations=2, counts=(1, 2))


class NoJudge:
    """Fluency is not what is tested here."""

    name = "none"

    def score(self, texts: Any) -> list[Any]:
        from gate_models.offline.scorers.ngram import Score

        return [Score(1.0, 1) for _ in texts]


@pytest.fixture(scope="module")
def model() -> MiniModel:
    return tiny_model()


@pytest.fixture
def loaded(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> MiniModel:
    monkeypatch.setattr(repair_census, "load_model", lambda *_, **__: model)
    monkeypatch.setattr(repair_census, "load_judge", NoJudge)
    return model


def prompt(constraint: dict[str, Any], length: int = 12) -> TaskPrompt:
    return TaskPrompt("p", "ifeval-letter-freq", "a b c", constraint, length, length)


HOPELESS = {"type": "keywords", "keywords": ["zebra xylophone"]}


def test_populations() -> None:
    assert population_of(np.array([0.0, 0.1, 0.0])) == "hopeless"
    assert population_of(np.array([0.2, 0.8, 0.3])) == "collapse"
    assert population_of(np.array([0.2, 0.8, 0.7])) is None
    assert population_of(np.array([0.2, 0.4, 0.0])) is None


def test_anchors() -> None:
    grid = [1, 2, 3, 6, 8]
    safe = np.array([0.2, 0.95, 0.3, 1.0, 1.0])
    assert anchors_of(safe, safe, grid, 16) == {"pre": 3, "post": 11}
    low = np.zeros(5)
    assert anchors_of(low, low, grid, 16) == {"pre": 4, "post": 11}
    assert anchors_of(safe, safe, [1, 2, 3, 14, 15], 16)["post"] == 15
    collapse = np.array([0.5, 0.9, 0.4, 0.1, 0.0])
    assert anchors_of(collapse, collapse, grid, 16) == {"pre": 1, "post": 5}
    drawn = np.random.default_rng(0).random((200, 2, 5))
    assert all(a["pre"] < a["post"] for a in (anchors_of(*one, grid, 16) for one in drawn))


def test_every_arm_reopens_what_it_says_and_ends_whole(model: MiniModel) -> None:
    census = RepairCensus(SETTINGS, model, NoJudge())
    measured = census.measure(RepairUnit(prompt(HOPELESS), 0))
    assert measured["population"] == "hopeless"
    assert measured["anchors"] == {"pre": measured["grid"][-1] // 2, "post": measured["grid"][-1] + 3}
    arms = measured["arms"]
    names = {*SETTINGS.selectors, CONTROL}
    assert {arm["arm"] for arm in arms} == names
    assert len(arms) == 2 * (2 + 2 * (len(names) - 2))
    for arm in arms:
        assert arm["masks_left"] == 0
        assert len(arm["success"]) == SETTINGS.continuations
        reopened = len(arm["positions"])
        assert arm["rows"] == SETTINGS.continuations * 2 * (12 - arm["step"])
        if arm["arm"] == CONTROL:
            assert reopened == 0
            assert arm["control_equal"] == arm["control_compared"] == 2
        elif arm["arm"] == "restart":
            assert reopened == arm["step"], "every committed position"
        else:
            assert reopened == min(arm["count"], arm["step"])
    assert measured["rows"] == census.engine.runner.counts.total


def test_control_equality_can_fail(model: MiniModel) -> None:
    """The audit compares what it says: a control from another step is not equal."""
    census = RepairCensus(SETTINGS, model, NoJudge())
    unit = RepairUnit(prompt(HOPELESS), 0)
    recorded = fresh_job(model, unit, SETTINGS)
    (outcome,) = census.decode([recorded])
    state = Anchored(model, outcome, recorded.predicate, "pre", 4)  # type: ignore[arg-type]
    plain = state.plain_control(0)
    (right, wrong) = census.decode([plain, replace(plain, noise=replace(plain.noise, rollout=1))])
    assert right.tokens != wrong.tokens


def test_a_stopped_census_goes_on(loaded: MiniModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "census.jsonl"
    measure = RepairCensus.measure

    def interrupted(self: RepairCensus, unit: RepairUnit, *rest: Any) -> dict[str, Any]:
        if out.read_text().count("\n") >= 2:
            raise KeyboardInterrupt
        return measure(self, unit, *rest)

    settings = replace(SETTINGS, selectors=("commit_confidence",), counts=(1,))
    monkeypatch.setattr(RepairCensus, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repair_census.run(settings, out)
    with out.open("a") as file:
        file.write('{"half": ')
    assert len(read_units(out)[1]) == 1, "a report can be made while a census runs"
    monkeypatch.setattr(RepairCensus, "measure", measure)
    assert repair_census.run(settings, out) == 1
    assert repair_census.run(settings, out) == 0
    whole = tmp_path / "whole.jsonl"
    repair_census.run(settings, whole)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        json.loads(line) for line in whole.read_text().splitlines()
    ]
    with pytest.raises(ValueError, match="another --out"):
        repair_census.run(replace(settings, seed=1), out)
    with pytest.raises(ValueError, match="not a repair census"):
        read_units(Path(__file__))


def test_a_lesion_stays_and_a_reopened_keyword_may_come_back(model: MiniModel) -> None:
    census = RepairCensus(SETTINGS, model, NoJudge())
    records: list[dict[str, Any]] = []
    for seed in range(40):
        units = [RepairUnit(prompt({"type": "keywords", "keywords": [letter]}), seed) for letter in "abcdefgh"]
        for unit, outcome in zip(units, census.decode([fresh_job(model, u, SETTINGS) for u in units]), strict=True):
            if outcome.kept is not None and outcome.kept.satisfied and not records:
                records = lesion_unit(model, outcome, unit.prompt.constraint, census.decode)
        if records:
            break
    assert records, "no seed writes a keyword early"
    keyword = [record for record in records if record["role"] == "keyword"]
    assert {(r["action"], r["guided"]) for r in keyword} == {
        ("lesion", True), ("lesion", False), ("reopen", True), ("reopen", False),
    }  # fmt: skip
    assert not any(record["restored"] for record in keyword if record["action"] == "lesion")


def test_the_competitor_is_another_token(model: MiniModel) -> None:
    base = job(model)
    canvas = (10, 11, 12, 13, *[model.spec.mask_id] * 8)
    other = competitor(model, base, canvas, 2)
    assert other not in {12, *model.spec.suppressed_ids, *model.spec.end_ids}


def test_the_report_pairs_by_prompt() -> None:
    def unit(name: str, seed: int, control: list[bool], reopened: list[bool]) -> dict[str, Any]:
        def arm(kind: str, count: int, success: list[bool]) -> dict[str, Any]:
            more = {"control_equal": 2, "control_compared": 2} if kind == CONTROL else {}
            return {"anchor": "pre", "step": 3, "arm": kind, "count": count, "positions": [1][:count], "masks_left": 0,
                    "success": success, "length": [5, 7], "nll": 2.0, "nll_tokens": 1, **more}  # fmt: skip

        arms = [arm(CONTROL, 0, control), arm("commit_confidence", 1, reopened), arm("committor", 1, reopened)]
        return {"task": "t", "prompt": name, "seed": seed, "population": "collapse", "anchors": {"pre": 3, "post": 7},
                "arms": arms, "rows": 9}  # fmt: skip

    units = [
        unit("a", 0, [False, False], [True, True]),
        unit("a", 1, [True, True], [True, True]),
        unit("b", 0, [False, False], [False, False]),
    ]
    many = [{**one, "prompt": f"{one['prompt']}{copy}"} for copy in range(3) for one in units]
    assert gains.gain(many, "pre", ("commit_confidence", 1)).startswith("+0.250 [+0.")
    assert gains.gain(units, "pre", ("commit_confidence", 1)) == "+0.250", "two prompts bear no interval"
    assert gains.gain(units, "post", ("commit_confidence", 1)) == "-"
    assert gains.agreement(units, "committor", "commit_confidence") == "1.00 of 3"
    assert "0 masks left in 18 continuations; control bit-equal 6/6" in repair_report.length_audit(units)
    header = {
        "model_hash": "h",
        "settings": {"seed": 0, "selectors": ["committor", "commit_confidence"], "counts": [1]},
    }
    text = repair_report.report(header, units)
    assert "3 collapse, 0 hopeless" in text
    assert "Median anchor steps: pre 3, post 7." in text
    assert "| commit_confidence | 0.500 | +0.250 | 7 | 0.38 (+0.15) | - | - | - | 0.35 (+0.16) |" in text
    assert "| control | 0.250 (paper 0.369) | - (paper 0.091) | - | - |" in text
    assert "| pre, collapse (3 runs) | +0.000 | 1.00 of 3 |" in text
    assert "| t, collapse | 2 | 0.250 | +0.25 | +0.25 | +0.250 |" in text
    assert "Families with a mean gain above 0: pre 1 of 1, post 0 of 0" in text
    assert "committor 0 of 0" in text
    sure = [unit(str(index), 0, [False], [True]) for index in range(6)]
    assert "commit_confidence 1 of 1" in repair_report.report(header, sure)


@pytest.fixture(scope="module")
def frozen(model: MiniModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A census of four prompts."""
    folder = tmp_path_factory.mktemp("frozen")
    settings = CensusSettings(("ifeval-letter-freq",), prompts=4, rollouts=2, repeats=1, extra_weights=())
    runs, cells, _ = decode_items(model, settings, plan(settings, {}), lambda _: None)
    write_shard(folder, "one", [run.row() for run in runs], cells)
    write_json(folder / "manifest.json", {"model_hash": model.spec.hash, "settings": asdict(settings)})
    return folder


def test_horizons_come_from_a_census(loaded: MiniModel, frozen: Path, tmp_path: Path) -> None:
    census = load_census(frozen)
    settings = replace(SETTINGS, prompts=4, counts=(1,), selectors=("random",))
    repair_census.run(settings, tmp_path / "out.jsonl", frozen)
    _, units = read_units(tmp_path / "out.jsonl")
    assert [unit["seed"] for unit in units] == [0] * 4
    by_key = {prompt.key: prompt for prompt in census.prompts}
    failed = [unit for unit in units if unit["population"] != "succeeds"]
    assert failed, "the tiny model satisfies every prompt: choose another seed"
    for unit in units:
        record = by_key[unit["task"], unit["prompt"]]
        assert record.runs[census.main_run].success == (unit["population"] == "succeeds")
    for unit in failed:
        counts = counts_of(census, by_key[unit["task"], unit["prompt"]])
        assert counts is not None
        assert unit["q0"] == (counts.base / counts.base_count).tolist()
        assert unit["source"] == "census seed 0, N = 2"
        if unit["population"] != "other":
            control = next(arm for arm in unit["arms"] if arm["arm"] == CONTROL)
            assert control["control_equal"] == control["control_compared"] == 2
    known = frozen_runs(census, loaded, settings)
    with pytest.raises(CensusError, match=r"weight 2\.0, not 1\.0"):
        frozen_runs(census, loaded, replace(settings, weight=1.0))
    key, one = next(iter(known.items()))
    wrong = replace(one, tokens=(*one.tokens[:-1], one.tokens[-1] + 1), satisfied=False)
    (unit,) = [unit for unit in units_of(settings, {key: wrong}) if unit.frozen is not None]
    with pytest.raises(ValueError, match="not reproduced"):
        RepairCensus(settings, loaded, NoJudge()).measure(unit)


def test_further_runs_of_a_population_are_only_counted(loaded: MiniModel, tmp_path: Path) -> None:
    settings = replace(SETTINGS, prompts=6, most=1, counts=(1,), selectors=("random",))
    out = tmp_path / "few.jsonl"
    repair_census.run(settings, out)
    _, units = read_units(out)
    for population in {unit["population"] for unit in units} - {"other"}:
        own = [unit for unit in units if unit["population"] == population]
        assert [unit.get("skipped", False) for unit in own] == [False] + [True] * (len(own) - 1)
        assert not any("arms" in unit or "lesion" in unit for unit in own[1:])
    assert any(unit.get("skipped") for unit in units)


def test_subtasks_take_turns() -> None:
    settings = replace(SETTINGS, subtasks=("ccg-length", "collie-c07"), prompts=2, seeds=2)
    assert [unit.prompt.task for unit in units_of(settings, {})] == ["ccg-length", "collie-c07"] * 4
