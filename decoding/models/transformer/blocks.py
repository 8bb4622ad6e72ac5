"""The bidirectional transformer that LLaDA and Dream share: pre-norm blocks, rotary positions, gated SiLU.

Per block, with h = RMSNorm(x): x += O softmax(R(Q h) R(K h)^T / sqrt(d) + mask) V h, then with h' = RMSNorm(x):
x += D (silu(G h') * U h'). Norms and rotations are computed in float32 whatever the dtype of the weights. Source: the
equations of the Llama and Qwen2 families without the causal mask (LLaDA, arXiv 2502.09992; Dream, arXiv 2508.15487).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from decoding.models.checkpoint import check_epsilon
from decoding.models.transformer.kv_cache import Attended


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; `vocab_size` counts embedding rows, used or not."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    norm_eps: float
    rope_theta: float
    qkv_bias: bool

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}")
        if self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2:
            raise ValueError(f"hidden_size {self.hidden_size} does not split into {self.num_heads} heads of even size")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value heads")
        check_epsilon("norm_eps", self.norm_eps)
        theta = self.rope_theta
        if not isinstance(theta, (int, float)) or isinstance(theta, bool) or not 1.0 < theta < float("inf"):
            raise ValueError(f"rope_theta must be a finite number above 1, not {theta!r}")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, cast back, times a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines [S, head_dim], float32, of position times frequency; the halves of a head form the pairs."""

    cos: Tensor
    sin: Tensor

    @staticmethod
    def of(length: int, head_dim: int, theta: float, device: torch.device) -> Rotation:
        """Positions 0..length-1; frequency i is theta^(-2i / head_dim)."""
        powers = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), 1.0 / theta**powers)
        angles = torch.cat([angles, angles], -1)
        return Rotation(angles.cos(), angles.sin())

    def at(self, columns: Tensor) -> Rotation:
        """Those of columns [B, W], for x [B, H, W, head_dim]."""
        return Rotation(self.cos[columns][:, None], self.sin[columns][:, None])

    def to(self, device: torch.device) -> Rotation:
        return Rotation(self.cos.to(device), self.sin.to(device))

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate x [B, H, S, head_dim]."""
        wide = x.float()
        left, right = wide.chunk(2, -1)
        return (wide * self.cos + torch.cat([-right, left], -1) * self.sin).to(x.dtype)


class Block(nn.Module):
    """Attention over all valid positions, then the gated feed-forward; a residual around each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, kv = shape.hidden_size, shape.num_kv_heads * shape.head_dim
        self.shape = shape
        self.attention_norm = RMSNorm(d, shape.norm_eps)
        self.query = nn.Linear(d, d, bias=shape.qkv_bias)
        self.key = nn.Linear(d, kv, bias=shape.qkv_bias)
        self.value = nn.Linear(d, kv, bias=shape.qkv_bias)
        self.attention_output = nn.Linear(d, d, bias=False)
        self.feed_forward_norm = RMSNorm(d, shape.norm_eps)
        self.gate = nn.Linear(d, shape.intermediate_size, bias=False)
        self.up = nn.Linear(d, shape.intermediate_size, bias=False)
        self.down = nn.Linear(shape.intermediate_size, d, bias=False)

    def _heads(self, x: Tensor, count: int) -> Tensor:
        return x.view(*x.shape[:2], count, self.shape.head_dim).transpose(1, 2)

    def keys_values(self, normed: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Rotated keys and values [B, kv_heads, S, head_dim] of normed [B, S, D]."""
        kv_heads = self.shape.num_kv_heads
        return rotation(self._heads(self.key(normed), kv_heads)), self._heads(self.value(normed), kv_heads)

    def attend(self, normed: Tensor, keys: Tensor, values: Tensor, rotation: Rotation, valid: Tensor | None) -> Tensor:
        """Mixed values [B, Q, D] of normed [B, Q, D]; `valid` [B, 1, 1, S] bool marks the keys that count."""
        queries = rotation(self._heads(self.query(normed), self.shape.num_heads))
        groups = self.shape.num_heads // self.shape.num_kv_heads
        if groups > 1:  # spelled out: with a mask, fused kernels refuse grouped heads
            keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=valid)
        return mixed.transpose(1, 2).flatten(2)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Output projection and feed-forward, position by position: x, mixed [B, Q, D] -> [B, Q, D]."""
        x = x + self.attention_output(mixed)
        normed = self.feed_forward_norm(x)
        result: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return result

    def forward(self, x: Tensor, rotation: Rotation, valid: Tensor | None, attended: Attended | None = None) -> Tensor:
        normed = self.attention_norm(x)
        keys, values = self.keys_values(normed, rotation)
        if attended is not None:
            keys, values = attended(keys, values)
        return self.finish(x, self.attend(normed, keys, values, rotation, valid))


class Transformer(nn.Module):
    """Embedding, blocks, final norm and untied head. Blocks may live on several devices, the rest is on the first."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)

    def encode(
        self, ids: Tensor, valid: Tensor | None, columns: Tensor | None = None, attended: Attended | None = None
    ) -> Tensor:
        """ids [B, S] int64, valid [B, S] bool (None: no padding) -> hidden states [B, S, D] before the final norm.

        With `columns` and `attended` the ids are windows of rows, and `valid` marks the keys that `attended` gives.
        """
        home = ids.device
        x: Tensor = self.embedding(ids)
        length = ids.shape[1] if valid is None else valid.shape[1]
        rotation = Rotation.of(length + (columns is not None), self.shape.head_dim, self.shape.rope_theta, home)
        rotation = rotation if columns is None else rotation.at(columns)
        keys_that_count = None if valid is None else valid[:, None, None, :]
        for block in self.blocks:
            device = next(block.parameters()).device
            if device != x.device:
                x, rotation = x.to(device), rotation.to(device)
                keys_that_count = None if keys_that_count is None else keys_that_count.to(device)
            x = block(x, rotation, keys_that_count, attended)
        return x.to(home)

    def project(self, hidden: Tensor) -> Tensor:
        """hidden [M, D] -> logits [M, V] in the dtype of the weights."""
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def layer_devices(num_layers: int, devices: Sequence[torch.device]) -> list[torch.device]:
    """One device a block: equal runs of consecutive blocks."""
    return [devices[index * len(devices) // num_layers] for index in range(num_layers)]
