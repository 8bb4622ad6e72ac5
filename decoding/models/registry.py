"""Architectures by the `architecture` / `model_type` of a checkpoint's config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import torch

from decoding.models.bert_mini import load_mini
from decoding.models.checkpoint import CheckpointError
from decoding.models.protocol import DenoisingModel

DType = Literal["float32", "bfloat16", "float16"]
DTYPES: Final[dict[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Loader = Callable[..., DenoisingModel]
LOADERS: Final[dict[str, Loader]] = {"bert_mini": load_mini}


def shipped_model() -> Path:
    """Folder of the model that the package ships."""
    return Path(str(files("decoding.mini")))


def read_config(path: Path) -> dict[str, Any]:
    """The checkpoint's config.json. Raises `CheckpointError`."""
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path / 'config.json'} does not exist; --model takes 'mini' or a checkpoint folder"
        ) from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path / 'config.json'} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path / 'config.json'} is not a JSON object")
    return config


def load_model(name_or_path: str = "mini", *, device: str = "cpu", dtype: str = "float32") -> DenoisingModel:
    """Load `mini` or a checkpoint folder. Raises `CheckpointError` with what to do."""
    if dtype not in DTYPES:
        raise CheckpointError(f"dtype {dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    path = shipped_model() if name_or_path == "mini" else Path(name_or_path)
    config = read_config(path)
    architecture = str(config.get("architecture") or config.get("model_type") or "")
    if architecture not in LOADERS:
        known = ", ".join(sorted(LOADERS))
        raise CheckpointError(f"{path / 'config.json'}: architecture {architecture!r} is not supported; supported: {known}")
    try:
        return LOADERS[architecture](path, device=torch.device(device), dtype=DTYPES[dtype])
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename} does not exist; the checkpoint folder is incomplete") from None
