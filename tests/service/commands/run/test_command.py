"""`astargate run` on a machine that lacks the client."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.commands.run.command import NO_CLIENT


def test_a_url_without_the_client_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commands.run.command.find_spec", lambda _name: None)
    done = CliRunner().invoke(app, ["run", "a", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert done.output == f"run: {NO_CLIENT}\n"
