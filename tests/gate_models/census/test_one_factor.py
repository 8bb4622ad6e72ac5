"""What a census can have beside the freeze sweep: OFAT axes, coupled numbers, weight sweep, switch runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from decoding.models.protocol import DenoisingModel
from gate_models.offline.census import one_factor
from gate_models.offline.census.report import report
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.tables import to_markdown, variance_ratio
from tests.decoding.tiny import tiny_model
from tests.gate_models.census.test_run import in_process

CENTRE = CensusSettings(
    subtasks=("cognac-avoidance",), prompts=1, rollouts=4, repeats=1, extra_weights=(), grid=(0.3, 0.6)
)


@pytest.fixture(scope="module")
def model() -> DenoisingModel:
    return tiny_model()


def test_one_factor_moves_at_a_time() -> None:
    configurations = one_factor.configurations(CENTRE, weights=(0.5, 2.0), lengths=(12,), steps=(8,))
    assert list(configurations) == ["centre", "weight-0.5", "length-12", "steps-8"]
    assert configurations["weight-0.5"] == replace(CENTRE, weight=0.5)
    assert configurations["length-12"] == replace(CENTRE, gen_length=12)
    assert configurations["steps-8"] == replace(CENTRE, steps=8)


def test_the_table_reads_every_configuration(model: DenoisingModel, tmp_path: Path) -> None:
    configured = one_factor.configurations(CENTRE, weights=(0.5,), steps=(8, 12))
    for name, settings in configured.items():
        in_process(settings, tmp_path / name, model)
    rows = one_factor.rows(tmp_path)
    assert {row.configuration for row in rows} == set(configured)
    assert all(row.prompts == sum(row.fates.values()) == 1 for row in rows)
    assert [row.configuration for row in rows] == ["centre", "steps-8", "steps-12", "weight-0.5"]
    text = one_factor.to_markdown(rows)
    assert all(name in text for name in configured)


@pytest.mark.parametrize("coupling", ["common", "antithetic"])
def test_a_coupled_census_says_what_the_coupling_bought(coupling: str, model: DenoisingModel, tmp_path: Path) -> None:
    settings = replace(CENTRE, coupling=coupling, rollouts=8, weight=0.2, prompts=2)
    measured = in_process(settings, tmp_path, model)
    ratio = variance_ratio(measured)
    text = to_markdown(measured, report(measured, splits=10))
    if ratio is not None:  # with no spread in any cell there is nothing to compare
        assert ratio > 0
        assert f"{ratio:.2f} of independent cells'" in text
    assert f"{coupling} cells" in text


def test_weight_sweep_and_switch_runs_reach_the_report(model: DenoisingModel, tmp_path: Path) -> None:
    settings = replace(CENTRE, sweep=(0.0, 1.0), switch=True, order="random")
    measured = in_process(settings, tmp_path, model)
    (prompt,) = measured.prompts
    assert {weight: cell.count for weight, cell in prompt.sweep().items()} == {0.0: 4, 1.0: 4}
    assert {cell.rows for cell in prompt.sweep().values()} == {4 * 16, 4 * 32}
    switched = sorted((cell.step, cell.rows) for cell in prompt.cells.values() if cell.kind == "switch")
    assert switched == [(step, 4 * (16 + step)) for step in (5, 10, 16)]
    (subtask,) = report(measured, splits=10)
    assert subtask.guidance_fates is not None
    assert sum(subtask.guidance_fates.values()) == 1
    assert subtask.ensemble is not None
    assert subtask.ensemble[0.03].median >= subtask.ensemble[0.1].median
    text = to_markdown(measured, [subtask])
    assert "## Guidance fates" in text
    assert "## Ensemble horizons" in text
