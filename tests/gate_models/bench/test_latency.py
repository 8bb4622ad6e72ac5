"""`astargate bench --with-horizon` measures a real server while a job really runs. Its figures are not judged here."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from service.cli import app


@pytest.mark.slow
def test_latency_with_and_without_a_horizon_job(tmp_path):
    out = tmp_path / "latency.json"
    arguments = ["--concurrency", "1,2", "--requests", "3", "--gen-length", "6", "--repeats", "1", "--out", str(out)]
    invoked = CliRunner().invoke(app, ["bench", "--with-horizon", *arguments])
    assert invoked.exit_code == 0, invoked.output
    result = json.loads(out.read_text())
    cells = {(cell["concurrency"], cell["horizon_job"]): cell for cell in result["cells"]}
    assert set(cells) == {(1, False), (1, True), (2, False), (2, True)}
    assert all(0 < cell["p50_seconds"] <= cell["p99_seconds"] for cell in cells.values())
    assert all(cell["requests"] == 3 for cell in cells.values())
    assert result["rollouts_per_second"] >= 0
    assert "| 2 | running |" in invoked.output


def test_a_server_that_does_not_start_is_explained(tmp_path):
    result = CliRunner().invoke(app, ["bench", "--with-horizon", "--model", str(tmp_path), "--requests", "1"])
    assert result.exit_code == 2
    assert "config.json does not exist" in result.output
