"""From a training run to a checkpoint: averaged weights in 8 bits, and the scales of their inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoding.mini.data import Batch
from decoding.models.bert_mini.int8 import calibrate, channel_scales
from decoding.models.bert_mini.network import SCALES, WEIGHTS, BertMini, BertMiniConfig
from decoding.models.bert_mini.packed_weights import pack

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
    network = BertMini(config).eval()
    network.load_state_dict(load_file(run / AVERAGE))
    seen = seen_inputs(network, batches)
    atomic_save(pack(network.state_dict(), channel_scales(network, seen)), folder / WEIGHTS)
    atomic_save(seen, folder / SCALES)
    tokenizer = (run / "tokenizer.json").read_bytes()
    (folder / "config.json").write_text(json.dumps({"architecture": "bert_mini", **config.to_dict()}, indent=1) + "\n")
    (folder / "tokenizer.json").write_bytes(tokenizer)


@torch.inference_mode()
def seen_inputs(network: BertMini, batches: Iterator[Batch]) -> dict[str, Tensor]:
    """What `decoding.models.bert_mini.int8` needs beside the weights of `network` (float32)."""
    with calibrate(network) as seen:
        for batch in islice(batches, CALIBRATION_BATCHES):
            network(batch.ids, batch.positions, batch.segments, batch.valid, batch.keep)
    return seen
