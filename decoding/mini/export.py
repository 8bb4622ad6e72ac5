"""From a training run to a checkpoint: averaged weights in fp16, and the scales of their 8-bit form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoding.mini.data import Batch
from decoding.models.bert_mini.int8 import calibrate
from decoding.models.bert_mini.network import SCALES, BertMini, BertMiniConfig

AVERAGE = "average.safetensors"
CALIBRATION_BATCHES = 24


def atomic_save(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file that is there whole or not at all."""
    partial = path.with_suffix(".partial")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, partial)
    partial.replace(path)


def export(run: Path, folder: Path, batches: Iterator[Batch]) -> None:
    """Write the averaged weights of `run` as a checkpoint: model, int8 scales, config and tokenizer.

    `batches` are training batches, on which the input scales are found.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = BertMiniConfig.read(run)
    weights = {name: tensor.half() for name, tensor in load_file(run / AVERAGE).items()}
    atomic_save(weights, folder / "model.safetensors")
    atomic_save(input_scales(config, weights, batches), folder / SCALES)
    tokenizer = (run / "tokenizer.json").read_bytes()
    (folder / "config.json").write_text(json.dumps({"architecture": "bert_mini", **config.to_dict()}, indent=1) + "\n")
    (folder / "tokenizer.json").write_bytes(tokenizer)


@torch.inference_mode()
def input_scales(config: BertMiniConfig, weights: dict[str, Tensor], batches: Iterator[Batch]) -> dict[str, Tensor]:
    """What `decoding.models.bert_mini.int8` needs beside the weights."""
    network = BertMini(config).eval()
    network.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    with calibrate(network) as scales:
        for batch in islice(batches, CALIBRATION_BATCHES):
            network(batch.ids, batch.positions, batch.segments, batch.valid, batch.keep)
    return scales
