"""`DenoisingModel` over the shared transformer, and how a checkpoint folder becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from decoding.models.checkpoint import CheckpointError, fingerprint
from decoding.models.protocol import ModelSpec, ReuseRow, TextCodec
from decoding.models.transformer.blocks import Shape, Transformer, layer_devices
from decoding.models.transformer.chat_codec import ChatCodec, tokenizer_files
from decoding.models.transformer.kv_cache import Attended, KeyValueReuse, Window
from decoding.models.transformer.quantization import Quantization, quantize
from decoding.models.transformer.shards import INDEX, Shards
from decoding.models.weightless import weightless

MAX_CANVAS = 1024
LEAST_CONTEXT = 32
"""Positions; a chat template alone takes a dozen."""
"""Longest canvas offered, whatever the context: the lengths that the models' authors evaluate."""


class TransformerModel:
    """LLaDA and Dream (see `decoding.models.protocol`): positions 0.. from the first prompt token, padding on the
    right.

    `shifted`: the network predicts token i at position i - 1, as its autoregressive ancestor did. `encode` moves the
    features so that callers never see it; position 0 is predicted by no slot and takes its own (upstream does the
    same), which only an empty prompt would read.
    """

    def __init__(
        self, network: Transformer, codec: ChatCodec, spec: ModelSpec, device: torch.device, *, shifted: bool
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self.codec: TextCodec = codec
        self.spec = spec
        self.device = device
        self.shifted = shifted

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        valid = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
        hidden = self.network.encode(ids, valid if always_mask or not bool(valid.all()) else None)
        if self.shifted:
            hidden = torch.cat([hidden[:, :1], hidden[:, :-1]], 1)
        return hidden.flatten(0, 1)

    def encode_reusing(self, rows: Sequence[ReuseRow]) -> list[Tensor]:
        lead = 1 if self.shifted else 0
        return KeyValueReuse(self._window, self.spec.mask_id, self.device, lead).features(rows)

    def _window(self, window: Window, attended: Attended) -> Tensor:
        return self.network.encode(window.ids, window.valid, window.columns, attended)

    def project(self, features: Tensor) -> Tensor:
        return self.network.project(features).float()


def load_network(
    shards: Shards,
    shape: Shape,
    names: Mapping[str, str],
    *,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization,
) -> Transformer:
    """The network of `shape` with the checkpoint's weights.

    `names` maps the top-level parts and the parts of a block (`Transformer`'s names) to the checkpoint's, "{n}"
    standing for the block's number. Blocks are spread over `devices` in equal runs. Raises `CheckpointError`.
    """
    with weightless():
        network = Transformer(shape)
    blocks = layer_devices(shape.num_layers, devices)
    theirs = {own: _their_name(own, names) for own in network.state_dict()}
    shards.check({theirs[own]: tuple(tensor.shape) for own, tensor in network.state_dict().items()})
    where = {theirs[own]: blocks[int(own.split(".")[1])] if own.startswith("blocks.") else devices[0] for own in theirs}
    tensors = shards.load(where, dtype)
    network.load_state_dict({own: tensors.pop(name) for own, name in theirs.items()}, assign=True)
    quantize(network.blocks, quantization)
    return network


def _their_name(own: str, names: Mapping[str, str]) -> str:
    module, _, kind = own.rpartition(".")
    if not module.startswith("blocks."):
        return f"{names[module]}.{kind}"
    _, number, part = module.split(".")
    return f"{names[part].format(n=number)}.{kind}"


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Token ids with a meaning of their own; see the fields of `ModelSpec`."""

    mask: int
    ends: tuple[int, ...]
    suppressed: tuple[int, ...]
    keep_prompt: tuple[int, ...] = ()


def chat_model_spec(
    checkpoint: tuple[Path, Shards],
    tokenizer: Tokenizer,
    ids: SpecialIds,
    *,
    name: str,
    architecture: str,
    context: int,
    vocab_size: int,
) -> ModelSpec:
    """The spec of a checkpoint (folder and shards) whose prompt and canvas share `context` positions."""
    if context < LEAST_CONTEXT:
        raise CheckpointError(
            f"{checkpoint[0] / 'config.json'}: {context} positions are too few for a prompt and a text"
        )
    max_canvas = min(MAX_CANVAS, context // 2)
    return ModelSpec(
        name=name,
        hash=checkpoint_hash(*checkpoint),
        architecture=architecture,
        vocab_size=vocab_size,
        mask_id=ids.mask,
        end_ids=ids.ends,
        suppressed_ids=ids.suppressed,
        max_prompt=context - max_canvas,
        max_canvas=max_canvas,
        default_canvas=min(128, max_canvas),
        default_block_length=min(32, max_canvas),
        continuation_ids=continuation_ids(tokenizer),
        reuses_key_values=True,
        keep_prompt_ids=ids.keep_prompt,
    )


def continuation_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of a byte-level vocabulary that begin with a Latin letter: no space before them, so they continue a word."""
    return frozenset(i for token, i in tokenizer.get_vocab().items() if token[0].isascii() and token[0].isalpha())


def checkpoint_hash(folder: Path, shards: Shards) -> str:
    """The hash that names the model: config, tokenizer, index and every shard."""
    index = (INDEX,) if (folder / INDEX).is_file() else ()
    return fingerprint(folder, ("config.json", *tokenizer_files(folder), *index, *shards.files))


def require(config: Mapping[str, Any], expected: Mapping[str, tuple[Any, ...]], where: Path) -> None:
    """Raise `CheckpointError` where `config` sets a field to none of the `expected` values (absent is fine)."""
    for key, allowed in expected.items():
        if key in config and config[key] not in allowed:
            raise CheckpointError(
                f"{where}: {key} is {config[key]!r}; this architecture is supported with "
                f"{' or '.join(map(repr, allowed))} only"
            )


def shape_of(config: Mapping[str, Any], fields: Mapping[str, str], where: Path, *, qkv_bias: bool) -> Shape:
    """The `Shape` whose fields stand in `config` under the names `fields`. Raises `CheckpointError`."""
    values = {}
    for own, key in fields.items():
        if config.get(key) is None:
            raise CheckpointError(f"{where} has no {key}")
        values[own] = config[key]
    try:
        return Shape(**values, qkv_bias=qkv_bias)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: {error}") from None
