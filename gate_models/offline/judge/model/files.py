"""Where the shipped judge's files lie."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def artifact_folder() -> Path:
    """Folder of the shipped judge: its weights, probe, unigrams, references, and the sheet with its labels."""
    return Path(str(files("gate_models"))) / "artifacts" / "judge"
