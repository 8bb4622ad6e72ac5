"""Models are listed with what they need and whether this machine has it, before anything is downloaded."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from decoding.models.checkpoint import CheckpointError
from decoding.models.registry import LOADERS, shipped_model
from gate_models.offline.bench.sizing import DREAM_7B, LLADA_8B, block_weights
from service.cli import app
from service.commands import known_models
from service.commands.known_models import DREAM, KNOWN, LLADA, fit_of, main_memory


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch):
    """Sets what the machine has free, in gigabytes."""
    return lambda gigabytes: monkeypatch.setattr("service.commands.models.memory_of", lambda _device: gigabytes)


def listed(*arguments: str) -> dict[str, str]:
    """Lines of the list by model."""
    done = CliRunner().invoke(app, ["models", *arguments])
    assert done.exit_code == 0, done.output
    return {line.split()[0]: line for line in done.output.splitlines() if line}


def test_each_known_model_has_a_loader_and_its_parameters() -> None:
    assert {known.architecture for known in KNOWN[1:]} == {name.lower() for name in LOADERS}
    for shape, parameters in ((LLADA_8B, LLADA), (DREAM_7B, DREAM)):
        counted = block_weights(shape) + 2 * shape.vocab_size * shape.hidden_size
        assert parameters == pytest.approx(counted, rel=0.01)
    with safe_open(shipped_model() / "model.safetensors", "pt") as weights:
        counted = sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    assert KNOWN[0].parameters == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(("free", "here"), [(100.0, "fits"), (18.0, "tight"), (8.0, "does not fit")])
def test_what_fits_is_said_for_this_machine(memory, free: float, here: str) -> None:
    memory(free)
    assert f"  {here}  " in listed()["GSAI-ML/LLaDA-8B-Instruct"]
    assert "  fits  " in listed()["mini"]


def test_a_wider_precision_needs_more(memory) -> None:
    memory(100.0)
    assert "16.0 GB" in listed()["GSAI-ML/LLaDA-8B-Base"]
    assert "32.1 GB" in listed("--dtype", "float32")["GSAI-ML/LLaDA-8B-Base"]
    assert listed("--dtype", "float32")["mini"] == listed()["mini"]


def test_fit_is_a_matter_of_the_room_that_is_left() -> None:
    assert (fit_of(8.0, 10.0), fit_of(8.1, 10.0), fit_of(10.1, 10.0)) == ("fits", "tight", "does not fit")


def test_a_container_has_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8000000 kB\n")
    monkeypatch.setattr(known_models, "MEMORY_FILE", tmp_path / "meminfo")
    monkeypatch.setattr(known_models, "CGROUP_LIMIT", tmp_path / "max")
    assert main_memory() == pytest.approx(8.192)
    (tmp_path / "max").write_text("2000000000\n")
    assert main_memory() == 2.0
    (tmp_path / "max").write_text("max\n")
    assert main_memory() == pytest.approx(8.192)


def pull(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["models", "pull", *arguments])
    return done.exit_code, done.output


def test_a_model_that_does_not_fit_is_not_downloaded(memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("decoding.models.hub.local_folder", lambda name: asked.append(name) or Path("/cache"))
    memory(4.0)
    code, said = pull("GSAI-ML/LLaDA-8B-Instruct")
    assert code == 2
    assert "16.0 GB to download" in said
    assert "--anyway" in said
    assert asked == []
    assert pull("GSAI-ML/LLaDA-8B-Instruct@main", "--anyway")[0] == 0
    assert asked == ["GSAI-ML/LLaDA-8B-Instruct@main"]


def test_a_hub_that_cannot_be_reached_is_a_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> Path:
        raise CheckpointError(f"{name!r} could not be downloaded")

    monkeypatch.setattr("decoding.models.hub.local_folder", offline)
    assert pull("owner/model") == (1, "models pull: 'owner/model' could not be downloaded\n")
    assert pull("mini")[0] == 2
