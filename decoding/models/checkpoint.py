"""What every loader needs: clear errors, strict tensors, and the hash that names a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

LARGEST_EPSILON: Final = 0.01
"""Beyond it a normalisation flattens what it normalises; published models have at most 1e-5."""


class CheckpointError(ValueError):
    """A model folder that cannot be loaded; the message names the file or tensor and what to do."""


def check_epsilon(name: str, value: object) -> None:
    """Raise `ValueError` unless `value` can be what a normalisation adds to a variance."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 < value <= LARGEST_EPSILON:
        raise ValueError(f"{name} must be above 0 and at most {LARGEST_EPSILON:g}, not {value!r}")


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint. Raises `CheckpointError`, or `OSError` where it cannot be read."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return content


def check_tensors(
    tensors: Mapping[str, Any],
    expected: Mapping[str, tuple[int, ...]],
    where: Path,
    *,
    files: Mapping[str, Path] | None = None,
) -> None:
    """Raise unless `tensors` holds exactly the `expected` names and shapes.

    `files` names the file of each tensor where `where` is only their index.
    """
    files = files or {}
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        raise CheckpointError(
            f"{where}: tensor {missing[0]} is missing ({len(missing)} in all); the download may be incomplete"
        )
    extra = sorted(tensors.keys() - expected.keys())
    if extra:
        hint = f"({len(extra)} in all); is config.json the right one?"
        raise CheckpointError(
            f"{files.get(extra[0], where)}: tensor {extra[0]} is not part of this architecture {hint}"
        )
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise CheckpointError(
                f"{files.get(name, where)}: tensor {name} has shape {tuple(tensors[name].shape)}, expected {shape}"
            )


def fingerprint(folder: Path, names: Iterable[str]) -> str:
    """First 16 hex digits of a SHA-256 over the named files, in order."""
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]
