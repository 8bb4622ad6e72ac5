"""A tiny random checkpoint on disk: what worker processes and commands load, in milliseconds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

from tests.decoding.tiny import tiny_model


def save_tiny(folder: Path, seed: int = 0) -> Path:
    """Write `tiny_model(seed)` as a checkpoint folder."""
    model = tiny_model(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = asdict(model.network.config) | {"architecture": "bert_mini"}
    (folder / "config.json").write_text(json.dumps(config))
    model.tokenizer.save(str(folder / "tokenizer.json"))
    save_file(
        {name: tensor.contiguous() for name, tensor in model.network.state_dict().items()}, folder / "model.safetensors"
    )
    return folder
