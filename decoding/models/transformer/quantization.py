"""Weight-only quantization of the blocks' linear layers, through torchao where it is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Literal, get_args

from torch import nn

from decoding.models.checkpoint import CheckpointError

Quantization = Literal["none", "int8", "int4"]
QUANTIZATIONS: Final = get_args(Quantization)
_CONFIGS: Final = {"int8": "Int8WeightOnlyConfig", "int4": "Int4WeightOnlyConfig"}


def check_quantization(kind: str) -> Quantization:
    """`kind`, checked before anything is loaded. Raises `CheckpointError` where it is unknown or torchao is missing."""
    if kind not in QUANTIZATIONS:
        raise CheckpointError(f"quantization {kind!r} is unknown; use one of {', '.join(QUANTIZATIONS)}")
    if kind != "none":
        _torchao()
    return kind  # type: ignore[return-value]


def quantize(blocks: nn.ModuleList, kind: Quantization) -> None:
    """Quantize the weights of `blocks` in place; embedding, norms and head stay as they are.

    The logits are then those of other weights: close, not equal. Peak memory is that of the unquantized weights. Raises
    `CheckpointError` where torchao has no kernel for the device.
    """
    if kind == "none":
        return
    torchao = _torchao()
    try:
        for block in blocks:
            torchao.quantize_(block, getattr(torchao, _CONFIGS[kind])())
    except (ImportError, RuntimeError, NotImplementedError, AssertionError, ValueError) as error:
        device = next(blocks.parameters()).device
        raise CheckpointError(
            f"quantization {kind} does not work on {device} here: {error}; use int8 or none"
        ) from error


def _torchao() -> Any:
    try:
        return import_module("torchao.quantization")
    except ImportError as error:
        raise CheckpointError(
            f"quantization needs torchao, which is not installed or not usable ({error}): pip install "
            "'astargate[quantization]'"
        ) from None
