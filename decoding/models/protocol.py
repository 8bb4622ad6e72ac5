"""What every model offers to the decoder: one small protocol, whatever its architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from decoding.models.generation import GenerationConfig

if TYPE_CHECKING:  # a request is checked by programs that load no model
    import torch
    from torch import Tensor

ReuseMode = Literal["prefix", "dual"]
Layers = list[tuple["Tensor", "Tensor"]]
"""Keys and values of every layer, [1, heads, S, head_dim] each, ready to be attended to."""


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
    family_canvas: Mapping[str, int] = field(default_factory=dict)
    """Canvas of a constraint family whose texts need another one than `default_canvas`."""
    default_block_length: int | None = None
    keep_prompt_ids: tuple[int, ...] = ()
    """Prompt ids that the unconditional branch keeps (none: the whole prompt becomes MASK)."""
    continuation_ids: frozenset[int] = frozenset()
    """Ids that continue the word to their left (empty: not known)."""
    text_margins: tuple[float, float] = (1 / 16, 1 / 8)
    """Shares of a canvas (rounded up to positions) at its start, where a text's first words are, and at its end, where
    its last mark and end-of-text are: guidance-first orders fill them last.
    """
    precision: str = "float32"
    """Arithmetic of the weights: a dtype, or the name of a quantization. Not part of the hash."""
    reuses_key_values: bool = False
    """Whether the model is a `ReusableModel`."""
    gives_attention: bool = False
    """Whether the model is an `AttendingModel`."""
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    """What a request gets that leaves temperature and policy open. Not part of the hash."""

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

    def unconditional_prompt(self, prompt_ids: Sequence[int]) -> list[int]:
        """The prompt as the unconditional branch sees it: MASK, but for the ids that this model keeps."""
        return [token if token in self.keep_prompt_ids else self.mask_id for token in prompt_ids]


class TextCodec(Protocol):
    """Text to ids and back, with the model's own prompt template."""

    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of the templated prompt. Raises `ValueError` where the text cannot be encoded."""
        ...

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of a conversation of (role, content), ready for the answer; a model without roles joins the contents.

        Raises `ValueError` as `encode_prompt` does.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of plain canvas text, without template or end-of-text."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of canvas ids (already cut at end-of-text)."""
        ...

    def settled(self, ids: list[int]) -> str:
        """The beginning of `decode(ids)` that `decode(ids + more)` begins with too, whatever comes."""
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


class AttendingModel(DenoisingModel, Protocol):
    """A model that can say how much positions of a canvas attend to one another."""

    def encode_attending(
        self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, rows: Sequence[int], *, always_mask: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """What `encode` gives, the same bits, and of each of `rows` [R] (indices into the batch) the attention [L, L].

        Entry (i, j) is what canvas position i pays to position j of all that it pays to its row, the mean over heads
        and the last two layers.
        """
        ...


@dataclass(slots=True)
class KVCache:
    """What one request keeps between its base steps; made when they begin, dropped with the request.

    Its settings: `prefix` recomputes from the active block to the end of the row, `dual` the block alone; everything is
    recomputed (a refresh) at a new block and every `refresh` steps (1: always, exact).
    """

    mode: ReuseMode
    refresh: int
    layers: Layers | None = None
    block: tuple[int, int] = (0, 0)
    age: int = 0
    """Steps that have used `layers`, the refresh itself included."""
    reused: int = 0
    """Steps that ran a window against what was kept: from the first on, the result is approximate."""
    tokens: int = 0
    """Tokens run, by refreshes and windows: the true cost, which the ledger's rows do not show."""


@dataclass(frozen=True, slots=True)
class ReuseRow:
    """A base row of one step; `block` (start, stop) and `scored`, which lies within it, are relative to the canvas."""

    ids: list[int]
    prompt_length: int
    scored: list[int]
    block: tuple[int, int]
    kept: KVCache


class ReusableModel(DenoisingModel, Protocol):
    """A model that can run part of a row against keys and values kept from an earlier step."""

    def encode_reusing(self, rows: Sequence[ReuseRow]) -> list[Tensor]:
        """Features [len(scored), *] of each row, as `project` takes them; each row's `kept` moves on by one step."""
        ...
