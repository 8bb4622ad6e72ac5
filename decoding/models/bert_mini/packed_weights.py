"""Weights of a `bert_mini` checkpoint stored in 8 bits: a quarter of float32's size, read back as float32.

A matrix W [N, K] is stored as integer codes, one scale for each output and one for each input channel:
W = codes * output_scale[:, None] / input_scale. The input scales are those of the 8-bit products
(`decoding.models.bert_mini.int8`), which get back exactly these codes. Small tensors are stored as fp16.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

CODES = ".codes"
OUTPUT_SCALE = ".output_scale"
INPUT_SCALE = ".input_scale"
LEVELS = 127.0
"""Largest code; codes are symmetric around 0."""


def row_codes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [N, K] float32 -> codes [N, K] int8 and a scale for each row [N]: weight is about codes * scale."""
    scales = weight.abs().amax(1).clamp(min=1e-9) / LEVELS
    return (weight / scales[:, None]).round_().to(torch.int8), scales


def pack(weights: Mapping[str, Tensor], input_scales: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store: matrices named in `input_scales` ([K] each) as codes and scales, the others as fp16."""
    packed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name not in input_scales:
            packed[name] = tensor.half()
            continue
        codes, rows = row_codes(tensor.float() * input_scales[name])
        packed |= {name + CODES: codes, name + OUTPUT_SCALE: rows, name + INPUT_SCALE: input_scales[name].float()}
    return packed


def unpack(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by their names: coded matrices as float32 [N, K], all others as they are stored.

    A coded matrix whose scales are missing keeps the name of its codes, so that a check of names reports it.
    """
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        base = name.removesuffix(CODES)
        scales = (base + OUTPUT_SCALE, base + INPUT_SCALE)
        if name.endswith((OUTPUT_SCALE, INPUT_SCALE)) and name.rpartition(".")[0] + CODES in stored:
            continue
        if base != name and all(scale in stored for scale in scales):
            rows, channels = (stored[scale].float() for scale in scales)
            weights[base] = tensor.float() * rows[:, None] / channels
        else:
            weights[name] = tensor
    return weights


def stored_input_scales(path: Path) -> dict[str, Tensor]:
    """Input scales [K] of the coded matrices in a file, by their weights' names; empty where it holds plain weights."""
    with safe_open(path, framework="pt") as file:
        names = [name for name in file.keys() if name.endswith(INPUT_SCALE)]  # noqa: SIM118  (no mapping)
        return {name.removesuffix(INPUT_SCALE): file.get_tensor(name) for name in names}
