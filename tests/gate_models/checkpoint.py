"""A tiny random checkpoint on disk: what worker processes and commands load, in milliseconds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

from decoding.models.bert_mini.network import MiniModel
from tests.decoding.tiny import tiny_model


def save_tiny(folder: Path, model: MiniModel | None = None) -> Path:
    """Write `model`, or the tiny one, as a checkpoint folder."""
    model = model or tiny_model()
    folder.mkdir(parents=True, exist_ok=True)
    config = asdict(model.network.config) | {"architecture": "bert_mini"}
    (folder / "config.json").write_text(json.dumps(config))
    model.tokenizer.save(str(folder / "tokenizer.json"))
    save_file(
        {name: tensor.contiguous() for name, tensor in model.network.state_dict().items()}, folder / "model.safetensors"
    )
    return folder
