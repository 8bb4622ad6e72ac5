"""The folder of a census: growth, lost and torn shards, what may not be mixed, the small form, reports half-way."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from gate_models.offline.census import run as census
from gate_models.offline.census.plan import missing
from gate_models.offline.census.records import Census, CensusError
from gate_models.offline.census.report import report
from gate_models.offline.census.store import cell_rows, digest, load_census, write_compact, write_shard
from gate_models.offline.census.tables import to_json, to_markdown
from gate_models.offline.runs.result_file import write_json
from tests.gate_models.census.test_run import MODEL, SETTINGS, in_process
from tests.gate_models.checkpoint import save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DenoisingModel:
    return load_model(str(save_tiny(tmp_path_factory.mktemp("model"))))


@pytest.fixture(scope="module")
def measured(model: DenoisingModel, tmp_path_factory: pytest.TempPathFactory) -> Census:
    return in_process(SETTINGS, tmp_path_factory.mktemp("census"), model)


def test_what_batches_lack() -> None:
    assert missing([], 3) == [(0, 3)]
    assert missing([(0, 2), (2, 2)], 4) == []
    assert missing([(0, 2)], 5) == [(2, 3)]
    assert missing([(6, 2), (2, 2)], 10) == [(0, 2), (4, 2), (8, 2)]
    assert missing([(2, 8)], 4) == [(0, 2)]
    assert missing([(6, 2)], 4) == [(0, 4)]


def test_a_lost_shard_of_a_grown_census_is_measured_again(
    measured: Census, model: DenoisingModel, tmp_path: Path
) -> None:
    """What it held is a gap in front of what was added since: the gap is filled, nothing is measured twice."""
    in_process(replace(SETTINGS, rollouts=1), tmp_path, model)
    first = {path.name for path in (tmp_path / "shards").iterdir()}
    more = replace(SETTINGS, extra_weights=())
    in_process(more, tmp_path, model)
    shutil.rmtree(tmp_path / "shards" / min(first))
    with pytest.raises(CensusError, match="without a run that they continue: a shard is gone; run the same"):
        load_census(tmp_path)
    assert digest(in_process(SETTINGS, tmp_path, model)) == digest(measured)


def test_a_census_that_is_growing_says_which_prompts_have_how_many_rollouts(
    measured: Census, model: DenoisingModel, tmp_path: Path
) -> None:
    in_process(SETTINGS, tmp_path, model)
    growing = in_process(replace(SETTINGS, subtasks=("commongen-k3",), prompts=1, rollouts=4), tmp_path, model)
    reports = report(growing, splits=20)
    assert [subtask.rollouts for subtask in reports] == [{2: 2}, {2: 1, 4: 1}]
    text = to_markdown(growing, reports)
    assert "| cognac-avoidance | 2 | 2 |" in text
    assert "| commongen-k3 | 2 | 2 (1), 4 (1) |" in text
    assert "N differs between prompts" in text
    assert "N differs between prompts" not in to_markdown(measured, report(measured, splits=20))


def test_plain_json_has_what_the_table_has(measured: Census) -> None:
    reports = report(measured, splits=20)
    plain_form = json.loads(json.dumps(to_json(measured, reports), allow_nan=False))
    for subtask, plain in zip(reports, plain_form["subtasks"], strict=True):
        assert subtask.table is not None
        assert plain["table"]["retention"] == subtask.table.retention
        assert plain["table"]["holds_at_margin"] == {"0.03": subtask.table.holds(), "0.05": subtask.table.holds(0.05)}
        assert plain["table"]["few_prompts"] is True
        assert plain["rollouts"] == {"2": 2}


def test_a_verdict_on_few_prompts_says_so(measured: Census) -> None:
    reports = report(measured, splits=20)
    table = to_markdown(measured, reports).split("## ")[1]
    assert " (few): fewer than 20 prompts" in table
    assert table.count("(few) | ") == 2 * len(reports)
    enough = [replace(subtask, table=subtask.table and replace(subtask.table, prompts=20)) for subtask in reports]
    assert "few" not in to_markdown(measured, enough)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"weight": 3.0}, {"grid": (0.1, 0.6)}, {"temperature": 0.5}, {"coupling": "common"}]
)
def test_other_settings_do_not_mix(change: dict[str, Any], tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", census._manifest(SETTINGS, tmp_path, MODEL))
    with pytest.raises(CensusError, match=f"was made with {next(iter(change))} = .*choose another --out folder"):
        census._manifest(replace(SETTINGS, **change), tmp_path, MODEL)


def test_a_grown_manifest_names_everything_that_is_there(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", census._manifest(SETTINGS, tmp_path, MODEL))
    grown = census._manifest(replace(SETTINGS, tail_widths=(1, 4), subtasks=("commongen-k4",)), tmp_path, MODEL)
    assert grown["settings"]["tail_widths"] == [1, 4, 8]
    assert grown["settings"]["subtasks"] == ["commongen-k3", "cognac-avoidance", "commongen-k4"]
    assert grown["codes"] == [census.code_version()]
    # a smaller run on the folder takes nothing out of it
    smaller = census._manifest(replace(SETTINGS, prompts=1, rollouts=1), tmp_path, MODEL)["settings"]
    assert (smaller["prompts"], smaller["rollouts"]) == (SETTINGS.prompts, SETTINGS.rollouts)
    assert census._manifest(replace(SETTINGS, prompts=None), tmp_path, MODEL)["settings"]["prompts"] is None


def test_a_folder_that_cannot_be_gone_on_with_is_refused(measured: Census, tmp_path: Path) -> None:
    write_compact(measured, tmp_path / "small")
    with pytest.raises(CensusError, match="small form of a census, which cannot be resumed"):
        census.run(SETTINGS, tmp_path / "small")
    prompt = measured.prompts[0]
    write_shard(tmp_path, "one", [prompt.any_run.row()], cell_rows(prompt.any_run, prompt.cells.values()))
    with pytest.raises(CensusError, match=r"shards without a manifest\.json"):
        census.run(SETTINGS, tmp_path)
    with pytest.raises(CensusError, match="write its small form to another folder"):
        write_compact(measured, tmp_path)


def test_another_model_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {**MODEL, "settings": {}})
    with pytest.raises(CensusError, match="choose another --out folder"):
        census._manifest(SETTINGS, tmp_path, {"model": "tiny", "model_hash": "other"})


def test_a_broken_shard_names_itself(measured: Census, tmp_path: Path) -> None:
    prompt = measured.prompts[0]
    write_shard(tmp_path, "one", [prompt.any_run.row()], cell_rows(prompt.any_run, prompt.cells.values()))
    write_json(tmp_path / "manifest.json", {**MODEL, "settings": {"weight": 2.0, "grid": [0.1]}})
    assert len(load_census(tmp_path).prompts) == 1
    (tmp_path / "shards" / "one" / "cells.parquet").write_bytes(b"torn")
    with pytest.raises(CensusError, match="delete that folder and run again"):
        load_census(tmp_path)


def test_a_folder_that_is_no_census_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CensusError, match="astargate census --out"):
        load_census(tmp_path)
