"""The one small protocol behind which every architecture lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CanvasDefaults:
    """Settings of a canvas that its request left open."""

    block_length: int | None
    defer_eos: bool


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What the decoder and the service must know of a model."""

    name: str
    hash: str
    """First 16 hex digits of a SHA-256 over the weights, tokenizer and config."""
    architecture: str
    vocab_size: int
    mask_id: int
    end_ids: tuple[int, ...]
    """End-of-text ids: the text is cut at the first; the first of them is what `eos_fill` writes."""
    suppressed_ids: tuple[int, ...]
    """Ids that are never emitted; `mask_id` is always among them."""
    max_prompt: int
    max_canvas: int
    default_canvas: int
    default_block_length: int | None = None
    keep_prompt_ids: tuple[int, ...] = ()
    """Prompt ids that the unconditional branch keeps (none: the whole prompt becomes MASK)."""

    def canvas_defaults(self, gen_length: int, steps: int) -> CanvasDefaults:
        """What a request without `block_length` and `defer_eos` gets.

        Models trained with end-of-text padding flood a long undivided canvas with it. A canvas longer than
        `default_block_length` is therefore cut into the longest blocks up to that length which divide the canvas and
        whose number divides the steps; where there is none, end-of-text is deferred instead.
        """
        wanted = self.default_block_length
        if wanted is None or gen_length <= wanted:
            return CanvasDefaults(None, False)
        for length in range(wanted, max(1, wanted // 4), -1):
            if gen_length % length == 0 and steps % (gen_length // length) == 0:
                return CanvasDefaults(length, False)
        return CanvasDefaults(None, True)

    def __post_init__(self) -> None:
        if self.mask_id not in self.suppressed_ids:
            raise ValueError(f"mask_id {self.mask_id} must be among suppressed_ids")
        if not self.end_ids:
            raise ValueError("a model needs at least one end-of-text id")


class TextCodec(Protocol):
    """Text to ids and back, with the model's own prompt template."""

    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of the templated prompt. Raises `ValueError` where the text cannot be encoded."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of plain canvas text, without template or end-of-text."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of canvas ids (already cut at end-of-text)."""
        ...

    def pieces(self, ids: list[int]) -> list[str]:
        """One display string a token."""
        ...


class DenoisingModel(Protocol):
    """A masked diffusion language model: ids with MASKs in, logits at chosen positions out.

    The two halves let the runner compute logits at masked positions only, in chunks of its choosing.
    """

    spec: ModelSpec
    codec: TextCodec
    device: torch.device

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        """ids [B, S] (prompt, canvas, right padding), prompt_lengths and lengths [B] -> features [B * S, *].

        Features of position i are what `project` needs to predict the token at position i (an architecture whose logits
        are shifted moves them here). Padding never influences a row. `always_mask` keeps the attention mask even where
        there is no padding, so that the arithmetic does not depend on the batch.
        """
        ...

    def project(self, features: Tensor) -> Tensor:
        """features [M, *] -> logits [M, V] in float32 (float64 where the model computes in it)."""
        ...
