"""The census that ships: of the shipped model, as its card says, and what the shipped gates were trained on."""

from __future__ import annotations

import re

import pytest

from gate_models.gates.learned import artifact
from gate_models.gates.learned.audit_report import AuditReport, reports_in
from gate_models.gates.shipped import shipped_folder
from gate_models.offline.census import report as census_report
from gate_models.offline.census import tables
from gate_models.offline.census.store import load_census
from gate_models.offline.gate_training.dataset import families_of, recorded_hash
from tests.shipped import mini

FOLDER = shipped_folder().parent / "census"


@pytest.fixture(scope="module")
def census():
    return load_census(FOLDER, heavy=False)


@pytest.fixture(scope="module")
def model():
    return mini()


def test_it_is_of_the_shipped_model_and_its_card_is_its_report(census, model):
    assert census.manifest["model_hash"] == model.spec.hash
    markdown = tables.to_markdown(census, census_report.report(census, splits=200), 200)
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) > 80
    missing = [line for line in lines if line not in card]
    assert missing == []


def test_the_shipped_gates_were_trained_on_it(census, model):
    bundles, refused = artifact.load_all(shipped_folder())
    assert refused == []
    assert {bundle.family for bundle in bundles} == set(families_of(census))
    for bundle in bundles:
        assert bundle.regime.model_hash == model.spec.hash
        prompts = census.of(bundle.evidence["task"])
        cells = [cell for prompt in prompts for cell in prompt.freeze(census.main_run, "base", census.grid)]
        assert bundle.evidence["rollouts"] in {cell.count for cell in cells}
        trained_on = [prompt for prompt in prompts if census.main_run in prompt.runs]
        assert recorded_hash(trained_on) == bundle.evidence["data_hash"]


def test_every_shipped_gate_was_audited_on_prompts_that_trained_nothing():
    bundles, _ = artifact.load_all(shipped_folder())
    reports, refused = reports_in([shipped_folder()])
    assert refused == []
    assert set(reports) == {bundle.version for bundle in bundles}
    pooled = AuditReport.load(shipped_folder())
    assert pooled is not None
    assert pooled.prompts == sum(report.prompts for report in reports.values())
    for report in reports.values():
        assert {"full_cfg", "constant", "policy"} <= {point.source for point in report.points}
        assert re.fullmatch(r"[0-9a-f]{12}", report.gate or "")
