"""A checkpoint's `generation_config.json`: what is read, and what is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from decoding.models.checkpoint import CheckpointError
from decoding.models.generation import FILE, GenerationConfig, read_generation_config
from decoding.models.registry import load_model, shipped_model


def test_without_the_file_the_defaults_are_the_papers(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == GenerationConfig(1.0, 1.0, {})


def test_what_other_programs_write_is_left_alone(tmp_path: Path) -> None:
    written = {"temperature": 0, "top_p": 0.9, "eos_token_id": 3, "policy": {"guidance_scale": 1}}
    (tmp_path / FILE).write_text(json.dumps(written))
    assert read_generation_config(tmp_path) == GenerationConfig(0.0, 0.9, {"guidance_scale": 1})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"temperature": "hot"}', "temperature must be a number from 0 to 5"),
        ('{"temperature": true}', "temperature"),
        ('{"temperature": 9}', "temperature"),
        ('{"top_p": 0}', "above 0"),
        ('{"policy": 3}', "policy must be an object"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=says):
        read_generation_config(tmp_path)


def test_defaults_come_with_the_model_and_are_no_part_of_its_identity(tmp_path: Path) -> None:
    shutil.copytree(shipped_model(), tmp_path / "model")
    before = load_model(str(tmp_path / "model")).spec
    (tmp_path / "model" / FILE).write_text('{"temperature": 0.25}')
    after = load_model(str(tmp_path / "model")).spec
    assert after.generation.temperature == 0.25
    assert after.hash == before.hash
