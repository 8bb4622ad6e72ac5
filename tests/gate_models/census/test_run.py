"""A census is one value of its seed: whatever the workers, shards, interruptions and the order in which it grew."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.census import run as census
from gate_models.offline.census.labels import counts_of, labels_of
from gate_models.offline.census.plan import plan, shard_name, units_of
from gate_models.offline.census.records import Census
from gate_models.offline.census.report import report
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.store import digest, load_census, write_compact, write_shard
from gate_models.offline.census.tables import to_markdown
from gate_models.offline.census.worker import _frozen_traces, _jobs, decode_items
from gate_models.offline.runs.result_file import write_json
from service.cli import app
from tests.gate_models.checkpoint import save_tiny

SETTINGS = CensusSettings(
    subtasks=("commongen-k3", "cognac-avoidance"),
    prompts=2,
    rollouts=2,
    repeats=1,
    extra_weights=(0.0,),
    grid=(0.1, 0.15, 0.6),
    tail_widths=(1, 8),
)
MODEL = {"model": "tiny", "model_hash": "tiny0"}


def in_process(settings: CensusSettings, out: Path, model: DenoisingModel, *, group: int = 1) -> Census:
    """The census without processes: what every other way of running it must equal."""
    items = plan(settings, census.read_done(out, settings))
    for start in range(0, len(items), group):
        part = tuple(items[start : start + group])
        runs, cells, _ = decode_items(model, settings, part, lambda rows: None)
        write_shard(out, shard_name(part), [run.row() for run in runs], cells)
    write_json(out / "manifest.json", {**MODEL, "seed": settings.seed, "settings": asdict(settings)})
    return load_census(out)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> DenoisingModel:
    return load_model(str(checkpoint))


@pytest.fixture(scope="module")
def measured(model: DenoisingModel, tmp_path_factory: pytest.TempPathFactory) -> Census:
    return in_process(SETTINGS, tmp_path_factory.mktemp("census"), model)


def test_a_census_holds_every_cell_of_every_prompt(measured: Census) -> None:
    assert [prompt.key[0] for prompt in measured.prompts] == ["cognac-avoidance"] * 2 + ["commongen-k3"] * 2
    for prompt in measured.prompts:
        assert set(prompt.runs) == {"w2#0", "w0#0"}
        steps = [(cell.step, cell.fractions) for cell in prompt.freeze("w2#0", "base")]
        assert steps == [(2, (0.1, 0.15)), (10, (0.6,))]  # T = 16: 0.10 and 0.15 collide
        assert {cell.arm for cell in prompt.cells.values()} == {"base", "base-k8", "guided"}
        assert all(cell.count == 2 and cell.tokens is not None for cell in prompt.cells.values())


def test_a_cell_continues_the_recorded_run(measured: Census, model: DenoisingModel) -> None:
    """Its tokens extend the canvas of the run at its step, and its rows are those of the steps that were left."""
    mask = model.spec.mask_id
    for prompt in measured.prompts:
        trace = prompt.runs["w2#0"].trace
        for cell in prompt.cells.values():
            canvas = trace.prefix(cell.step, mask)
            kept = canvas != mask
            assert cell.committed_fraction == kept.mean()
            assert cell.tokens is not None
            assert (cell.tokens[:, kept] == canvas[kept]).all()
            assert not (cell.tokens == mask).any()
            left = 16 - cell.step
            each = {"guided": 2 * left, "base": left}.get(cell.arm, -(-int((~kept).sum()) // 8))
            assert cell.rows == each * cell.count


def test_traces_keep_what_gates_read(measured: Census) -> None:
    run = measured.prompts[0].runs["w2#0"]
    steps = run.trace.steps
    assert len(steps) == 16
    assert steps[3].masked_entropy is not None
    assert steps[3].kl is not None
    assert steps[3].argmax_positions
    assert tuple(run.trace.prefix(16, -1)) == run.tokens


def test_independent_cells_share_no_numbers(measured: Census, model: DenoisingModel) -> None:
    """Two prompts, steps and arms never draw the same uniforms: every noise key of the census is another one."""
    items = plan(SETTINGS, {})
    runs = [run for prompt in measured.prompts for run in prompt.runs.values()]
    traces = _frozen_traces(SETTINGS, items, runs)
    keys = [
        job.noise for item in items for cell in item.cells for job in _jobs(model, SETTINGS, item.unit, cell, traces)
    ]
    assert len(keys) == len(set(keys)) == 4 * 2 * 3 * 2


def test_shard_size_changes_nothing(measured: Census, model: DenoisingModel, tmp_path: Path) -> None:
    assert digest(in_process(SETTINGS, tmp_path, model, group=3)) == digest(measured)


def test_a_census_grows_by_prompts_rollouts_arms_and_runs(
    measured: Census, model: DenoisingModel, tmp_path: Path
) -> None:
    """Whatever was there first, the grown census is that of one run; nothing is measured twice."""
    small = replace(SETTINGS, prompts=1, rollouts=1, extra_weights=(), tail_widths=(1,), grid=SETTINGS.grid)
    first = in_process(small, tmp_path, model)
    assert len(first.prompts) == 2
    grown = in_process(SETTINGS, tmp_path, model)
    assert digest(grown) == digest(measured)
    assert plan(SETTINGS, census.read_done(tmp_path, SETTINGS)) == []
    rows = sum(cell.rows for prompt in grown.prompts for cell in prompt.cells.values())
    assert rows == sum(cell.rows for prompt in measured.prompts for cell in prompt.cells.values())


def test_the_compact_form_says_the_same(measured: Census, tmp_path: Path) -> None:
    write_compact(measured, tmp_path)
    compact = load_census(tmp_path)
    assert to_markdown(compact, report(compact, splits=20)) == to_markdown(measured, report(measured, splits=20))
    assert all(cell.tokens is None for prompt in compact.prompts for cell in prompt.cells.values())
    for light, full in zip(compact.prompts, measured.prompts, strict=True):
        assert labels_of(compact, light) == labels_of(measured, full)
        kl = [[s.kl.mean for s in p.runs["w2#0"].trace.steps if s.kl is not None] for p in (light, full)]
        assert np.allclose(*kl, rtol=1e-3)


def test_a_report_names_every_prompt(measured: Census) -> None:
    (avoidance, keywords) = report(measured, splits=20)
    for subtask in (avoidance, keywords):
        assert subtask.prompts == sum(subtask.handoff_fates.values()) == sum(subtask.splits.values()) == 2
        assert subtask.collided == ((0.1, 0.15),)
        assert subtask.table is not None
    text = to_markdown(measured, [avoidance, keywords])
    assert "commongen-k3" in text
    assert "0.1 and 0.15" in text


def test_splits_are_disjoint_stable_and_balanced() -> None:
    few = {unit.key: unit.split for unit in units_of(replace(SETTINGS, prompts=50))}
    many = units_of(replace(SETTINGS, prompts=200))
    assert few.items() <= {unit.key: unit.split for unit in many}.items()
    assert split_of(0, "t", "p") == split_of(0, "t", "p")
    assert {split_of(seed, "t", "p") for seed in range(50)} == {"train", "calibrate", "audit"}
    for cut in (40, 100, 250):
        tasks = [unit.prompt.task for unit in many[:cut]]
        assert abs(tasks.count("commongen-k3") - cut / 2) <= 1
        shares = {s: sum(u.split == s for u in many) / len(many) for s in ("train", "calibrate", "audit")}
        for name, share in shares.items():
            assert abs(sum(unit.split == name for unit in many[:cut]) - share * cut) <= 3


def test_an_incomplete_prompt_has_no_labels(measured: Census) -> None:
    prompt = measured.prompts[0]
    cells = {key: cell for key, cell in prompt.cells.items() if (cell.arm, cell.step) != ("guided", 10)}
    assert counts_of(measured, replace(prompt, cells=cells)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 0.0}, "weight above 0"),
        ({"extra_weights": (2.0,)}, "leave it out"),
        ({"sweep": (1.0, 2.0)}, "needs weight 0"),
        ({"rollouts": 0}, "at least 1"),
        ({"tail_widths": (0,)}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subtasks": ("nonsense",)}, "unknown"),
        ({"prompts": 10_000}, "--prompts must be from 1"),
        ({"grid": (1.0,)}, "before the last step"),
    ],
)
def test_a_census_that_cannot_run_says_so_at_once(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        census.run(replace(SETTINGS, **change), tmp_path)


# -- real processes --------------------------------------------------------------------------------------------------


def command(model: Path, out: Path, *extra: str) -> list[str]:
    return [
        sys.executable,
        *("-m", "service.cli", "census", "--model", str(model), "--subtasks", "commongen-k3,cognac-avoidance"),
        *("--prompts", "2", "--rollouts", "2", "--repeats", "1", "--extra-weights", "0", "--grid", "0.1,0.15,0.6"),
        *("--tail-widths", "1,8", "--shard", "1", "--out", str(out), *extra),
    ]


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def wait_for(condition: Any, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


def start(asked: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(asked, stderr=file)


def shards(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "shards").glob("[!.]*"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="follows the worker processes through /proc")
def test_kill_9_and_resume_gives_the_identical_result(measured: Census, checkpoint: Path, tmp_path: Path) -> None:
    """Killed twice (the parent, then by SIGTERM), resumed with other workers: the same census, to the last bit."""
    out, log = tmp_path / "census", tmp_path / "log"
    process = start(command(checkpoint, out, "--workers", "2"), log)
    wait_for(lambda: shards(out) or process.poll() is not None)
    workers = children(process.pid)
    assert process.poll() is None, log.read_text()
    process.send_signal(signal.SIGKILL)
    process.wait(600)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))  # they end with their parent
    kept = {name: (out / "shards" / name / "cells.parquet").stat().st_mtime_ns for name in shards(out)}
    assert 1 <= len(kept) < 4

    process = start(command(checkpoint, out), log)
    wait_for(lambda: len(shards(out)) > len(kept) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) in (0, 130)

    finished = CliRunner().invoke(app, command(checkpoint, out)[3:])
    assert finished.exit_code == 0, finished.output
    assert {name: (out / "shards" / name / "cells.parquet").stat().st_mtime_ns for name in kept} == kept
    assert not list((out / "shards").glob(".*"))
    resumed = load_census(out)
    assert digest(resumed) == digest(measured)
