"""`evaluate.run`: resumable, honest about what changed, and independent of the fluency judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoding.models.bert_mini.network import MiniModel
from gate_models.offline.benchmarks.tasks import SUBTASKS
from gate_models.offline.evaluation import run as evaluate
from gate_models.offline.evaluation.run import EvaluateSettings
from gate_models.offline.model_card.card import evaluation_section
from gate_models.offline.runs import versions
from gate_models.offline.runs.result_file import ResultFile, identity, table
from gate_models.policies.names import parse_policy
from tests.decoding.tiny import tiny_model

SETTINGS = EvaluateSettings(("few-keywords", "ifeval-no-comma"), ("base", "full_cfg"), n=2, samples=2, threads=1)


class Counting:
    """Counts the cells that are decoded; `stop_at` interrupts the run there."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.labels: list[str] = []
        self.stop_at = stop_at
        self._decode = evaluate.decode

    def __call__(self, *arguments: Any) -> Any:
        if len(self.labels) == self.stop_at:
            raise KeyboardInterrupt
        self.labels.append(arguments[-1])
        return self._decode(*arguments)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> MiniModel:
    tiny = tiny_model()
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: tiny)
    return tiny


@pytest.fixture
def counting(model: MiniModel, monkeypatch: pytest.MonkeyPatch) -> Counting:
    counter = Counting()
    monkeypatch.setattr(evaluate, "decode", counter)
    return counter


def without_times(result: dict[str, Any]) -> str:
    rows = json.loads(json.dumps(result["tasks"]))
    for cells in rows.values():
        for row in cells["policies"].values():
            del row["seconds"], row["seconds_per_sample"]
    return json.dumps(rows, sort_keys=True)


def test_a_result_has_every_cell_with_fluency_beside_success(counting: Counting, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "result.json"
    result = evaluate.run(SETTINGS, out)
    assert counting.labels == [
        "[1/4] few-keywords base",
        "[2/4] few-keywords full_cfg",
        "[3/4] ifeval-no-comma base",
        "[4/4] ifeval-no-comma full_cfg",
    ]
    assert json.loads(out.read_text()) == json.loads(json.dumps(result))
    for cells in result["tasks"].values():
        for name, row in cells["policies"].items():
            assert row["samples"] == len(cells["samples"][name]) == 4
            assert row["fluency"]["perplexity"] > 1
            assert 0 <= row["success"] <= 1
    assert not list(out.parent.glob("*.partial"))


def test_an_interrupted_run_goes_on_where_it_stopped(
    model: MiniModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = evaluate.run(SETTINGS)
    out = tmp_path / "result.json"
    stopped = Counting(stop_at=2)
    monkeypatch.setattr(evaluate, "decode", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate.run(SETTINGS, out)
    stopped.stop_at = None
    resumed = evaluate.run(SETTINGS, out)
    assert len(stopped.labels) == 4
    assert without_times(resumed) == without_times(whole)
    evaluate.run(SETTINGS, out)
    assert len(stopped.labels) == 4


@pytest.mark.parametrize("change", [{"seed": 1}, {"samples": 1}, {"temperature": 0.5}, {"n": 1}, {"invariant": True}])
def test_other_settings_decode_again(counting: Counting, tmp_path: Path, change: dict[str, Any]) -> None:
    out, one = tmp_path / "result.json", replace(SETTINGS, tasks=("few-keywords",), policies=("base",))
    evaluate.run(one, out)
    evaluate.run(replace(one, **change), out)
    assert len(counting.labels) == 2


def test_further_tasks_join_the_file(counting: Counting, tmp_path: Path) -> None:
    out, one = tmp_path / "result.json", replace(SETTINGS, policies=("base",))
    evaluate.run(replace(one, tasks=("few-keywords",)), out)
    result = evaluate.run(one, out)
    assert len(counting.labels) == 2
    assert set(result["tasks"]) == set(SETTINGS.tasks)


def test_another_model_starts_over(counting: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, one = tmp_path / "result.json", replace(SETTINGS, tasks=("few-keywords",), policies=("base",))
    evaluate.run(one, out)
    other = tiny_model(seed=1)
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: other)
    assert evaluate.run(one, out)["model_hash"] == other.spec.hash
    assert len(counting.labels) == 2


def cells_of(result: dict[str, Any]) -> set[tuple[str, str]]:
    return {(task, policy) for task, cells in result["tasks"].items() for policy in cells["policies"]}


@pytest.mark.parametrize("change", [{"seed": 1}, {"temperature": 0.5}, {"n": 1}, {"threads": 2}])
def test_a_header_is_true_of_every_cell_under_it(counting: Counting, tmp_path: Path, change: dict[str, Any]) -> None:
    out = tmp_path / "result.json"
    evaluate.run(SETTINGS, out)
    one = replace(SETTINGS, tasks=("few-keywords",), policies=("base",), **change)
    result = evaluate.run(one, out)
    assert cells_of(result) == cells_of(json.loads(out.read_text())) == {("few-keywords", "base")}


def test_an_interrupted_run_leaves_no_cell_of_another_seed(
    model: MiniModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    evaluate.run(SETTINGS, out)
    monkeypatch.setattr(evaluate, "decode", Counting(stop_at=1))
    with pytest.raises(KeyboardInterrupt):
        evaluate.run(replace(SETTINGS, seed=1), out)
    assert cells_of(json.loads(out.read_text())) == {("few-keywords", "base")}


@pytest.mark.parametrize("name", ["torch", "astargate"])
def test_another_version_decodes_again(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    out, one = tmp_path / "result.json", replace(SETTINGS, tasks=("few-keywords",), policies=("base",))
    evaluate.run(one, out)
    if name == "torch":
        monkeypatch.setattr(versions.torch, "__version__", "0.0")
    else:
        monkeypatch.setattr(versions, "version", lambda _: "0.0")
    evaluate.run(one, out)
    assert len(counting.labels) == 2


def test_a_card_shows_what_the_last_run_asked_for(counting: Counting, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    evaluate.run(SETTINGS, out)
    evaluate.run(replace(SETTINGS, tasks=("few-keywords",), policies=("full_cfg",), weights=(0.0,)), out)
    assert len(counting.labels) == 4
    section = evaluation_section(json.loads(out.read_text()))
    assert "| base |" in section
    assert "| full_cfg |" not in section
    assert "ifeval-no-comma" not in section


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("base:k8", ["base:k8"]),
        ("handoff:0.3:k8:a0.9:rdual4", ["base:k8:a0.9:rdual4", "handoff:0.3:k8:a0.9:rdual4:w2"]),
        ("drained:0.5:rprefix8:k4", ["base:k4:rprefix8", "drained:0.5:rprefix8:k4:w2"]),
        ("parallel_tail:0.3:spaced:mend4", ["base:k8:spaced:mend4", "parallel_tail:0.3:spaced:mend4:w2"]),
        ("parallel_tail:0.3", ["base:k8", "parallel_tail:0.3:w2"]),
        ("full_cfg:k4:guidance_boost", ["base", "full_cfg:k4:guidance_boost:w2"]),
        ("full_cfg:w3", ["base", "full_cfg:w2"]),
        ("base:k8,handoff:0.3:k8,handoff:0.3:k8", ["base:k8", "handoff:0.3:k8:w2"]),
        ("base:random", ["base:random"]),
    ],
)
def test_a_sweep_keeps_the_options(policies: str, expected: list[str]) -> None:
    named = evaluate.named_policies(replace(SETTINGS, policies=tuple(policies.split(",")), weights=(0.0, 2.0)))
    assert [policy.name for policy in named] == expected
    assert [policy.policy for policy in named] == [parse_policy(name).policy for name in expected]


def test_a_policy_that_is_named_twice_runs_once() -> None:
    assert len(evaluate.named_policies(replace(SETTINGS, policies=("base", "base")))) == 1


def test_a_parallel_tail_hands_off_where_it_says() -> None:
    named = parse_policy("parallel_tail:0.3")
    assert (named.policy.preset, named.policy.tail_width, named.policy.gate.fraction) == ("parallel_tail", 8, 0.3)
    assert named.gate.planned_step(10) == 3
    assert parse_policy("parallel_tail:0.3:k4:a0.9").policy.tail_width == 4
    assert parse_policy("parallel_tail:0.3:spaced:mend4").policy.tail_mend == 4


@pytest.mark.parametrize("name", ["parallel_tail", "handoff", "drained", "parallel_tail:k4", "handoff:k8"])
def test_a_handoff_needs_a_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"policy '{name}' needs a number"):
        parse_policy(name)


def test_all_stands_for_the_subtasks(counting: Counting) -> None:
    one = replace(SETTINGS, tasks=("all",), policies=("base",), n=1, samples=1)
    assert tuple(evaluate.run(one)["tasks"]) == SUBTASKS


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    out.write_text('{"tasks": {"a"')
    results = ResultFile(out, {"model_hash": "m"})
    assert results.find("a", "base", "x") is None
    results.write()
    assert json.loads(out.read_text()) == {"model_hash": "m", "tasks": {}}


def test_identity_depends_on_values_alone() -> None:
    assert identity(a=1, b=[2]) == identity(b=[2], a=1) != identity(a=1, b=[3])


def test_reuse_by_name_runs_fewer_tokens(model: MiniModel) -> None:
    settings = replace(SETTINGS, tasks=("few-keywords",), policies=("base", "base:rdual4"), block_length=4)
    exact, reused = evaluate.run(settings)["tasks"]["few-keywords"]["policies"].values()
    assert reused["rows_per_sample"] == exact["rows_per_sample"]
    assert reused["tokens_per_sample"] < exact["tokens_per_sample"]


@pytest.mark.parametrize("name", ["full_cfg:rprefix4", "base:rsuffix4", "base:rprefix0", "base:rprefix"])
def test_reuse_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        evaluate.named_policies(replace(SETTINGS, policies=(name,)))


def test_a_table_shows_no_perplexity_where_there_is_none() -> None:
    row = {
        "success": 0.5,
        "success_interval_95": [0.4, 0.6],
        "adjacent_repeat_rate": 0.0,
        "mean_words": 9.0,
        "distinct_2": 0.5,
        "rows_per_sample": 16.0,
        "full_cfg_equivalent": 32.0,
        "tokens_per_sample": 640.0,
        "seconds_per_sample": 0.1,
        "fluency": {"perplexity": None},
    }
    assert "| base | 0.500 | 0.40-0.60 | - | - | - | 0.00 | 9.0 | 0.50 | 16.0 | 50% | 640 | 0.100 |" in table(
        "t", {"base": row}
    )
    assert "| 88 |" in table("t", {"base": row | {"fluency": {"perplexity": 88.2}}})
