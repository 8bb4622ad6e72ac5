"""`astargate random-model` and `astargate sizing`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from decoding.models.registry import load_model
from gate_models.offline.bench.sizing import H100, LLADA_8B, table
from service.cli import app


@pytest.mark.parametrize("arch", ["llada", "dream"])
def test_a_random_model_is_written_and_loads(arch: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["random-model", "--arch", arch, "--out", str(tmp_path / arch)])
    assert answer.exit_code == 0
    assert f"random {arch} checkpoint" in answer.output.replace("\n", " ")
    assert load_model(str(tmp_path / arch)).spec.max_canvas > 0


def test_sizing_prints_the_table() -> None:
    answer = CliRunner().invoke(app, ["sizing"])
    assert answer.output.strip() == table(LLADA_8B, H100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random-model", "--arch", "gpt", "--out", "x"], "llada, dream"),
        (["sizing", "--model", "gpt"], "dream"),
        (["sizing", "--weights", "int3"], "bfloat16"),
        (["sizing", "--share", "2"], "less than or equal to 1"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: list[str], message: str) -> None:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split()).replace("│ ", "").replace(" │", "")
