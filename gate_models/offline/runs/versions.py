"""Versions that a result depends on, written into every result file."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from decoding.models.protocol import ModelSpec


def software() -> dict[str, str]:
    """Versions that a text can depend on."""
    try:
        astargate = version("astargate")
    except PackageNotFoundError:
        astargate = "source tree"
    return {"astargate": astargate, "torch": torch.__version__}


def header(spec: ModelSpec, settings: Any) -> dict[str, Any]:
    """What a result must name to be made again: the model, the versions, the machine and the settings (a dataclass)."""
    return {
        "model": spec.name,
        "model_hash": spec.hash,
        "precision": spec.precision,
        "versions": {**software(), "python": platform.python_version()},
        "machine": platform.processor() or platform.machine(),
        "settings": asdict(settings),
    }
