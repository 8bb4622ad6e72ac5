"""The `mini` architecture: a post-LN BERT encoder with a tied masked-token head.

Layout of a row: prompt tokens (segment 0) followed by canvas tokens (segment 1). Canvas position i always has the
learned position i; prompt position j has `prompt_offset + j`, so the canvas looks the same to the model whatever the
prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from decoding.models.bert_mini.codec import MiniCodec
from decoding.models.bert_mini.family_canvas import FAMILY_CANVAS
from decoding.models.bert_mini.packed_weights import unpack
from decoding.models.bert_mini.vocabulary import EOT, MASK, SPECIAL, WRITTEN, token_id
from decoding.models.checkpoint import CheckpointError, check_epsilon, check_tensors, fingerprint
from decoding.models.protocol import ModelSpec, ReuseRow, TextCodec
from decoding.models.transformer.kv_cache import Attended, KeyValueReuse, Window
from decoding.models.weightless import weightless

WEIGHTS = "model.safetensors"
SCALES = "int8.safetensors"
"""Inputs seen, for a checkpoint's 8-bit form (`decoding.models.bert_mini.int8`)."""


@dataclass(frozen=True, slots=True)
class BertMiniConfig:
    """Shape of the encoder; serialised as the checkpoint's `config.json`."""

    vocab_size: int
    hidden_size: int = 384
    num_layers: int = 6
    num_heads: int = 12
    intermediate_size: int = 1536
    max_positions: int = 512
    prompt_offset: int = 64
    layer_norm_eps: float = 1e-12
    relative_buckets: int = 0
    """Rows of the table of relative-position biases, shared by all layers (0: the encoder has none)."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for sizes that no encoder can have."""
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "layer_norm_eps":
                check_epsilon(item.name, value)
            elif item.name == "relative_buckets" and value == 0:
                continue  # the encoder has no such table
            elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{item.name} must be a positive whole number, not {value!r}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} does not split into {self.num_heads} heads")
        if self.prompt_offset >= self.max_positions:
            raise ValueError(f"prompt_offset {self.prompt_offset} leaves no room for a prompt in {self.max_positions}")

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)

    @staticmethod
    def read(folder: Path) -> BertMiniConfig:
        """From the config.json of a checkpoint or a training run."""
        values = json.loads((folder / "config.json").read_text())
        try:
            return BertMiniConfig(**{name: value for name, value in values.items() if name != "architecture"})
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{folder / 'config.json'}: {error}") from None


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each followed by a residual LayerNorm (post-LN)."""

    def __init__(self, config: BertMiniConfig) -> None:
        super().__init__()
        d = config.hidden_size
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(d, 3 * d)
        self.attention_output = nn.Linear(d, d)
        self.attention_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(d, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, d)
        self.output_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)

    def attend(self, x: Tensor, bias: Tensor | None, attended: Attended | None = None) -> Tensor:
        """x [B, Q, D], bias [B or 1, H or 1, Q or 1, S] additive or None -> mixed values [B, Q, D], unprojected."""
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        if attended is not None:
            k, v = attended(k, v)
        if self.training:  # two products: the fused form's backward pass is several times slower on CPUs
            scores = q @ k.transpose(-1, -2) * (d // self.num_heads) ** -0.5
            weights = (scores if bias is None else scores + bias).softmax(-1).to(v.dtype)
            mixed: Tensor = weights @ v
            return mixed.transpose(1, 2).reshape(b, s, d)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b, s, d)

    def attention(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [1, S, D], bias as `attend` takes it -> what each position pays to each [S, S], the mean over heads."""
        _, s, d = x.shape
        q, k, _ = self.qkv(x).view(s, 3, self.num_heads, d // self.num_heads).permute(1, 2, 0, 3)
        scores = q @ k.transpose(-1, -2) * (d // self.num_heads) ** -0.5
        weights: Tensor = (scores if bias is None else scores + bias[0]).float().softmax(-1).mean(0)
        return weights

    def finish(self, x: Tensor, mixed: Tensor, dropout: float) -> Tensor:
        """Output projection, feed-forward and both LayerNorms, position by position: [..., D] -> [..., D]."""
        x = self.attention_norm(x + F.dropout(self.attention_output(mixed), dropout, self.training))
        hidden = self.output(F.gelu(self.intermediate(x)))
        normed: Tensor = self.output_norm(x + F.dropout(hidden, dropout, self.training))
        return normed

    def forward(self, x: Tensor, bias: Tensor | None, dropout: float = 0.0, attended: Attended | None = None) -> Tensor:
        return self.finish(x, self.attend(x, bias, attended), dropout)


class BertMini(nn.Module):
    """Encoder and tied head. Only the positions asked for pass the last layer's feed-forward and the head (exact,
    cheaper).
    """

    def __init__(self, config: BertMiniConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        d = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, d)
        self.position_embeddings = nn.Embedding(config.max_positions, d)
        self.segment_embeddings = nn.Embedding(2, d)
        buckets = config.relative_buckets
        self.relative_bias = nn.Embedding(buckets, config.num_heads) if buckets else None
        self.embedding_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.head_transform = nn.Linear(d, d)
        self.head_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        self.head_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def encode(
        self,
        ids: Tensor,
        positions: Tensor,
        segments: Tensor,
        valid: Tensor | None,
        attended: Attended | None = None,
        columns: Tensor | None = None,
        inputs: list[Tensor] | None = None,
    ) -> Tensor:
        """ids, positions, segments [B, S] int64; valid [B, S] bool (None: no padding) -> features [B * S, 2D].

        Features are the last layer's input and mixed values side by side: the rest of that layer works position by
        position. With `attended` the ids are windows of rows at `columns` [B, Q], and `valid` marks the
        keys that it gives. What each layer takes [B, S, D] is added to `inputs`.
        """
        x = self.word_embeddings(ids) + self.position_embeddings(positions) + self.segment_embeddings(segments)
        x = F.dropout(self.embedding_norm(x), self.dropout, self.training)
        bias = self._bias(ids.shape[1], valid, columns, x)
        for layer in self.layers[:-1]:
            if inputs is not None:
                inputs.append(x)
            x = layer(x, bias, self.dropout, attended)
        if inputs is not None:
            inputs.append(x)
        return torch.cat([x, self._last.attend(x, bias, attended)], -1).flatten(0, 1)

    def attention(self, inputs: Sequence[Tensor]) -> Tensor:
        """What each position of one row pays to each [S, S]: the mean over the last layers, which took `inputs`
        ([S, D] each).
        """
        bias = self._bias(inputs[0].shape[0], None, None, inputs[0])
        layers = zip(self.layers[-len(inputs) :], inputs, strict=True)
        return torch.stack([cast(EncoderLayer, layer).attention(x[None], bias) for layer, x in layers]).mean(0)

    def _bias(self, queries: int, valid: Tensor | None, columns: Tensor | None, like: Tensor) -> Tensor | None:
        """What is added to the attention scores [B or 1, H or 1, Q or 1, S]: relative positions and padding."""
        bias = None
        if valid is not None:
            shape = torch.zeros(valid.shape, dtype=like.dtype, device=like.device)
            bias = shape.masked_fill_(~valid, float("-inf"))[:, None, None]
        if self.relative_bias is not None:
            keys = torch.arange(queries if valid is None else valid.shape[1], device=like.device)
            asking = keys[None] if columns is None else columns
            buckets = distance_buckets(keys - asking[..., None], self.config.relative_buckets)
            relative = self.relative_bias(buckets).permute(0, 3, 1, 2)
            bias = relative if bias is None else relative + bias
        return bias

    @property
    def _last(self) -> EncoderLayer:
        layer = self.layers[-1]
        assert isinstance(layer, EncoderLayer)
        return layer

    def project(self, features: Tensor) -> Tensor:
        """features [M, 2D] -> logits [M, V]."""
        x, mixed = features.chunk(2, -1)
        hidden = self._last.finish(x, mixed, self.dropout)
        return self.logits(self.head_norm(F.gelu(self.head_transform(hidden))))

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [M, D] -> logits [M, V]; the output projection is the word embedding, transposed."""
        return F.linear(hidden, self.word_embeddings.weight, self.head_bias)

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor, valid: Tensor | None, keep: Tensor) -> Tensor:
        """Logits [M, V] at the flat positions `keep` [M] of the batch."""
        return self.project(self.encode(ids, positions, segments, valid)[keep])


MAX_DISTANCE = 128
"""Columns apart from which on all distances share a bucket."""


def distance_buckets(distances: Tensor, buckets: int) -> Tensor:
    """Bucket of each signed distance (key column - query column), as T5 and MPNet have them: int64, same shape.

    Half of the buckets are for keys to the right. Half of each side are exact distances, the others grow as powers up
    to `MAX_DISTANCE`.
    """
    side = buckets // 2
    exact = side // 2
    away = distances.abs()
    ratio = (away.clamp(min=1).float() / exact).log() / math.log(MAX_DISTANCE / exact)
    grown = (exact + (ratio * (side - exact)).long()).clamp(max=side - 1)
    return torch.where(away < exact, away, grown) + side * (distances > 0)


def places(columns: Tensor, prompt_lengths: Tensor, lengths: Tensor, prompt_offset: int) -> tuple[Tensor, Tensor]:
    """Positions and segments of columns [B or 1, S] in rows of `lengths` [B]; position 0 beyond a row's end."""
    canvas = columns >= prompt_lengths[:, None]
    positions = torch.where(canvas, columns - prompt_lengths[:, None], columns + prompt_offset)
    return positions.masked_fill(columns >= lengths[:, None], 0), canvas.long()


class MiniModel:
    """`DenoisingModel` over a trained `BertMini` (see `decoding.models.protocol`)."""

    def __init__(self, network: BertMini, tokenizer: Tokenizer, spec: ModelSpec, device: torch.device) -> None:
        self.network = network.eval().requires_grad_(False)
        self.spec = spec
        self.tokenizer = tokenizer
        self.codec: TextCodec = MiniCodec(tokenizer)
        self.device = device

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        return self._encode(ids, prompt_lengths, lengths, always_mask, None)

    def encode_attending(
        self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, rows: Sequence[int], *, always_mask: bool
    ) -> tuple[Tensor, list[Tensor]]:
        inputs: list[Tensor] = []
        features = self._encode(ids, prompt_lengths, lengths, always_mask, inputs)
        attention = []
        for row in rows:  # each alone and without its padding, so that no other row has a say
            start, stop = int(prompt_lengths[row]), int(lengths[row])
            attention.append(self.network.attention([x[row, :stop] for x in inputs[-2:]])[start:, start:])
        return features, attention

    def _encode(
        self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, always_mask: bool, inputs: list[Tensor] | None
    ) -> Tensor:
        columns = torch.arange(ids.shape[1], device=ids.device)[None]
        valid = columns < lengths[:, None]
        positions, segments = places(columns, prompt_lengths, lengths, self.network.config.prompt_offset)
        mask = valid if always_mask or not bool(valid.all()) else None
        return self.network.encode(ids, positions, segments, mask, inputs=inputs)

    def encode_reusing(self, rows: Sequence[ReuseRow]) -> list[Tensor]:
        return KeyValueReuse(self._window, self.spec.mask_id, self.device).features(rows)

    def _window(self, window: Window, attended: Attended) -> Tensor:
        offset = self.network.config.prompt_offset
        where = places(window.columns, window.prompt_lengths, window.lengths, offset)
        features = self.network.encode(window.ids, *where, window.valid, attended, window.columns)
        return features.view(*window.ids.shape, -1)

    def project(self, features: Tensor) -> Tensor:
        return self.network.project(features).float()


def load_mini(path: Path, *, device: torch.device, dtype: torch.dtype) -> MiniModel:
    """Load a `mini` checkpoint folder (config.json, tokenizer.json, model.safetensors).

    Raises `CheckpointError` naming the file or tensor at fault.
    """
    config = BertMiniConfig.read(path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    if tokenizer.get_vocab_size() != config.vocab_size:
        raise CheckpointError(
            f"{path / 'tokenizer.json'} has {tokenizer.get_vocab_size()} tokens, "
            f"config.json says vocab_size {config.vocab_size}"
        )
    with weightless():
        network = BertMini(config)
    weights = unpack(load_file(path / WEIGHTS))
    tensors = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
    check_tensors(tensors, {name: tuple(t.shape) for name, t in network.state_dict().items()}, path / WEIGHTS)
    network.load_state_dict(tensors, assign=True)
    identity = ("config.json", "tokenizer.json", WEIGHTS)
    scales = (SCALES,) if (path / SCALES).is_file() else ()
    never = [token_id(tokenizer, token) for token in SPECIAL if token not in WRITTEN]
    spec = ModelSpec(
        name="mini",
        hash=fingerprint(path, (*identity, *scales)),
        architecture="bert_mini",
        vocab_size=config.vocab_size,
        mask_id=token_id(tokenizer, MASK),
        end_ids=(token_id(tokenizer, EOT),),
        suppressed_ids=tuple(never),
        max_prompt=config.max_positions - config.prompt_offset,
        max_canvas=config.prompt_offset,
        default_canvas=16,
        family_canvas=FAMILY_CANVAS,
        continuation_ids=frozenset(i for token, i in tokenizer.get_vocab().items() if token.startswith("##")),
        reuses_key_values=True,
        gives_attention=True,
        precision=str(dtype).removeprefix("torch."),
    )
    return MiniModel(network, tokenizer, spec, device)
