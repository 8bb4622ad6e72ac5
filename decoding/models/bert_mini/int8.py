"""`bert_mini` in 8-bit integers on the CPU: the same network, several times faster where the CPU has VNNI.

Weights have a scale for each output, inputs a fixed one for each channel: nothing depends on what else is in a batch.
Those scales come from what `calibrate` saw once on texts of the model, which is stored beside the weights. Products are
exact integers; normalisation, attention and the residual stream stay in float32. Large channels are shared between
input and weight as in SmoothQuant (arXiv 2211.10438).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from decoding.models.bert_mini.network import SCALES, WEIGHTS, BertMini, EncoderLayer, MiniModel
from decoding.models.bert_mini.packed_weights import LEVELS, row_codes, stored_input_scales
from decoding.models.checkpoint import CheckpointError

LINEARS = ("qkv", "attention_output", "intermediate", "output")
HEAD = "head"
ZERO = 128
SEEN = 20_000
"""Hidden values kept of each call while calibrating."""
BALANCE = 0.75
"""Share of a channel's spread that its input keeps; the weight takes the rest."""

Activation = Literal["none", "gelu"]


@dataclass(frozen=True, slots=True)
class Coded:
    """8-bit values [M, K]: real value = scale * (code - zero)."""

    codes: Tensor
    scale: float
    zero: int


class Int8Linear(nn.Module):
    """y = act(x W' + b) on 8-bit x and W, float32 y, or coded y where `output` gives its (scale, zero)."""

    inverse: Tensor

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        channel: Tensor | None,
        activation: Activation = "none",
        output: tuple[float, int] | None = None,
    ) -> None:
        super().__init__()
        self.activation, self.output = activation, output
        if channel is not None:
            self.register_buffer("inverse", 1.0 / channel)
            weight = weight * channel
        codes, scales = row_codes(weight)
        self.register_buffer("bias", bias.contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(len(scales), dtype=torch.int64))
        self.packed = torch.ops.onednn.qlinear_prepack(codes, None)

    def forward(self, x: Tensor | Coded) -> Tensor | Coded:
        """x [..., K] float32, or coded [M, K]."""
        if isinstance(x, Coded):
            shape: tuple[int, ...] = tuple(x.codes.shape)
            codes, scale, zero = x.codes, x.scale, x.zero
        else:
            shape = tuple(x.shape)
            flat = x.reshape(-1, shape[-1])
            codes = (flat * self.inverse).round_().add_(ZERO).clamp_(0, 255).to(torch.uint8)
            scale, zero = 1.0, ZERO
        out_scale, out_zero = self.output or (1.0, 0)
        kind = torch.float32 if self.output is None else torch.uint8
        y = torch.ops.onednn.qlinear_pointwise(
            codes, scale, zero, self.packed, self.scales, self.zeros, self.bias, out_scale, out_zero, kind,
            self.activation, [], "none" if self.activation == "gelu" else "",
        )  # fmt: skip
        return y.view(*shape[:-1], y.shape[-1]) if self.output is None else Coded(y, out_scale, out_zero)


def input_scales(weight: Tensor, peaks: Tensor) -> Tensor:
    """Scale of each input channel [K] from the weight [N, K] and the largest inputs `peaks` [K]."""
    spread = peaks.clamp(min=1e-5) ** BALANCE / weight.abs().amax(0).clamp(min=1e-5) ** (1.0 - BALANCE)
    return spread * (peaks / spread).max() / LEVELS


class Int8EncoderLayer(EncoderLayer):
    """The layer with its four products in 8 bits; the feed-forward's hidden values never leave them."""

    def finish(self, x: Tensor, mixed: Tensor, dropout: float) -> Tensor:
        x = self.attention_norm(x + self.attention_output(mixed))
        hidden = self.output(self.intermediate(x))
        normed: Tensor = self.output_norm(x + hidden.view(x.shape))
        return normed


class Int8BertMini(BertMini):
    """Inference only, on the CPU."""

    head: Int8Linear

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(hidden)
        return logits


def weight_name(name: str) -> str:
    """The weight that multiplies the inputs which `calibrate` calls `name`: "3.qkv" or "head"."""
    return "word_embeddings.weight" if name == HEAD else f"layers.{name}.weight"


def channel_scales(network: BertMini, seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The scale of each input channel [K] of every 8-bit matrix, by the weight's name; `seen` as `calibrate` gives it.

    The feed-forward's second product takes coded inputs, which share one scale: 1 in each channel.
    """
    scales = {}
    for name, values in seen.items():
        weight = network.get_parameter(weight_name(name)).detach()
        coded = name.endswith(".output")
        scales[weight_name(name)] = torch.ones(weight.shape[1]) if coded else input_scales(weight, values)
    return scales


def quantized(
    network: BertMini, seen: Mapping[str, Tensor], channels: Mapping[str, Tensor] | None = None
) -> Int8BertMini:
    """An 8-bit copy of `network`; `seen` as `calibrate` gives it, `channels` the input scales of stored codes."""
    channels = channels or channel_scales(network, seen)
    made = copy.deepcopy(network).float()
    made.__class__ = Int8BertMini
    assert isinstance(made, Int8BertMini)
    for number, layer in enumerate(made.layers):
        assert isinstance(layer, EncoderLayer)
        layer.__class__ = Int8EncoderLayer
        low, high = seen[f"{number}.output"].tolist()
        code_scale = (high - low) / 255.0
        coded = code_scale, round(-low / code_scale)
        for name in LINEARS:
            own, gelu = getattr(layer, name), name == "intermediate"
            channel = None if name == "output" else channels[weight_name(f"{number}.{name}")]
            activation: Activation = "gelu" if gelu else "none"
            replacement = Int8Linear(own.weight, own.bias, channel, activation, coded if gelu else None)
            setattr(layer, name, replacement)
    made.head = Int8Linear(made.word_embeddings.weight, made.head_bias, channels[weight_name(HEAD)])
    return made


def supported() -> bool:
    """Whether this CPU multiplies 8-bit integers exactly and fast."""
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()  # type: ignore[no-untyped-call]


def load_scales(folder: Path) -> dict[str, Tensor]:
    """The checkpoint's input scales. Raises `CheckpointError` where it has none."""
    path = folder / SCALES
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; this checkpoint has no 8-bit form, use --quantization none")
    return load_file(path)


def in_int8(model: MiniModel, folder: Path) -> MiniModel:
    """`model` (float32, on the CPU) in 8 bits, with the scales of its checkpoint's folder."""
    if not supported():
        raise CheckpointError("8-bit decoding needs a CPU with VNNI instructions; use --quantization none")
    network = quantized(model.network, load_scales(folder), stored_input_scales(folder / WEIGHTS))
    return MiniModel(network, model.tokenizer, replace(model.spec, precision="int8"), model.device)


@contextmanager
def calibrate(network: BertMini) -> Iterator[dict[str, Tensor]]:
    """Run `network` (float32) inside the block on typical rows; the scales are in the mapping after it.

    Inputs have the largest absolute value of each channel [K]; the hidden values of the feed-forward ("<layer>.output")
    the smallest value and the bound [2] at which cutting and rounding together cost least.
    """
    scales: dict[str, Tensor] = {}
    hidden: dict[str, list[Tensor]] = {}

    def peaks(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            largest = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).abs().amax(0)
            scales[name] = torch.maximum(scales.get(name, torch.zeros_like(largest)), largest)

        return see

    def keep(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            values = inputs[0].detach().flatten()
            hidden.setdefault(name, []).append(torch.cat([values[:: max(1, len(values) // SEEN)], values.max()[None]]))

        return see

    hooks = [network.head_norm.register_forward_hook(lambda m, i, out: peaks(HEAD)(m, (out,)))]
    for number, layer in enumerate(network.layers):
        for name in LINEARS:
            see = keep if name == "output" else peaks
            hooks.append(getattr(layer, name).register_forward_pre_hook(see(f"{number}.{name}")))
    try:
        yield scales
    finally:
        for hook in hooks:
            hook.remove()
        scales |= {name: hidden_range(torch.cat(parts)) for name, parts in hidden.items()}


def hidden_range(values: Tensor) -> Tensor:
    """[2]: the smallest of `values`, and the upper bound with the least squared error of 8-bit codes."""
    low, top = float(values.min()), float(values.max())

    def error(high: float) -> float:
        step = (high - low) / 255.0
        coded = ((values - low) / step).round().clamp(0, 255) * step + low
        return float((coded - values).square().sum())

    return torch.tensor([low, min((top * share / 20.0 for share in range(2, 21)), key=error)])
