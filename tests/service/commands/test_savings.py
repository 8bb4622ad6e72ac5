"""`astargate savings`: some forty ordinary kinds of request, and what they spend of full CFG on the shipped model."""

from __future__ import annotations

import contextlib

import pytest
from typer.testing import CliRunner

from service.backend import backend
from service.cli import app
from service.commands.request_kinds import KINDS
from service.commands.spending import Spent, measured, table
from service.config.settings import Settings


@pytest.fixture(scope="module")
def spent() -> list[Spent]:
    settings = Settings(defaults="model")
    loaded = backend.load(settings)
    with contextlib.closing(loaded.engine):
        return measured(loaded, settings, samples=1, seed=0)


def test_ordinary_requests_save(spent: list[Spent]) -> None:
    """Of four texts a kind nine of ten do (docs/results/ordinary-requests.md); a single text may miss the line."""
    assert len(spent) >= 40
    assert sum(one.rows <= 0.85 for one in spent) / len(spent) >= 0.8
    assert sum(one.rows < 1.0 for one in spent) / len(spent) >= 0.9


def test_none_falls_back_silently(spent: list[Spent]) -> None:
    for one in spent:
        assert (one.reason is not None) == one.fell_back, one.name
        assert one.evidence in ("audited", "pooled") or one.decisions == "full_cfg", one.name


def test_the_table_has_every_kind_and_the_shares(spent: list[Spent]) -> None:
    shown = table(spent)
    assert all(f"| {one.name} |" in shown for one in spent)
    assert "save 15% or more; the median saves" in shown


def test_every_route_and_setting_is_among_them() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.route for kind in KINDS} == {"generate", "completions", "chat"}
    assert {kind.body.get("temperature") for kind in KINDS} >= {None, 0, 0.6}
    assert {8, 128} <= {kind.body.get("gen_length") for kind in KINDS}


def test_a_folder_of_gates_that_is_not_there_is_an_error() -> None:
    result = CliRunner().invoke(app, ["savings", "--gates", "/nowhere/at-all"])
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_a_model_that_is_not_there_is_an_error() -> None:
    result = CliRunner().invoke(app, ["savings", "--model", "nowhere/at-all"])
    assert result.exit_code != 0
    assert "nowhere" in result.output + str(result.exception)
