"""`astargate sizing`: memory and forward time of a large model from its shape, nothing measured.

With S tokens a row (M of them are scored), P weights in the blocks, hidden size d, n layers and V embedding rows, one
row costs S (2 P + 4 S d n) + 2 M d V floating-point operations. A forward of any number of rows reads the weights once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from decoding.models.transformer.blocks import Shape
from gate_models.offline.runs import markdown

LLADA_8B: Final = Shape(126464, 4096, 32, 32, 32, 12288, 1e-5, 5e5, False)
DREAM_7B: Final = Shape(152064, 3584, 28, 28, 4, 18944, 1e-6, 1e6, True)
MODELS: Final = {"llada": LLADA_8B, "dream": DREAM_7B}
HEADS: Final = (
    *("rows", "tokens a row", "weights, GB", "activations, GB"),
    *("compute bound, ms", "read bound, ms", "forward, ms"),
)
BATCHES: Final = ((2, 256), (2, 1024), (16, 256), (16, 1024), (64, 256), (64, 1024))
WEIGHT_BYTES: Final = {"bfloat16": 2.0, "int8": 1.0, "int4": 0.5}
HEAD_COPIES: Final = 8
"""Float32 tensors [chunk, V] alive at once while candidates are computed (both branches, probabilities, ...)."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as its data sheet has it; `share` is the part of the peak that is assumed to be reached."""

    teraflops: float
    terabytes_per_second: float
    share: float


H100: Final = Card(989.0, 3.35, 0.5)
"""H100 SXM: dense bfloat16 peak and memory bandwidth of the data sheet, half of the peak assumed."""


@dataclass(frozen=True, slots=True)
class ForwardEstimate:
    """Gigabytes (10^9 bytes) and milliseconds of one forward."""

    weights_gb: float
    activations_gb: float
    compute_ms: float
    read_ms: float

    @property
    def memory_gb(self) -> float:
        return self.weights_gb + self.activations_gb

    @property
    def forward_ms(self) -> float:
        """The larger of the two bounds."""
        return max(self.compute_ms, self.read_ms)


def block_weights(shape: Shape) -> int:
    """Weights of the matrices of all blocks."""
    d, kv = shape.hidden_size, shape.num_kv_heads * shape.head_dim
    return shape.num_layers * (2 * d * d + 2 * d * kv + 3 * d * shape.intermediate_size)


def row_flops(shape: Shape, length: int, scored: int) -> int:
    """Floating-point operations of one row of `length` tokens with `scored` positions through the head."""
    attention = 4 * length * shape.hidden_size * shape.num_layers
    return length * (2 * block_weights(shape) + attention) + 2 * scored * shape.hidden_size * shape.vocab_size


def estimate(
    shape: Shape, rows: int, length: int, *, scored: int, card: Card, chunk: int = 64, weights: str = "bfloat16"
) -> ForwardEstimate:
    """One forward of `rows` rows. Weights outside the blocks stay in bfloat16 when the blocks are quantized.

    Activations: the widest point of a block (two float32 copies and six others of the hidden state, three of the
    feed-forward, all in bfloat16) and the head's float32 tensors of one chunk; attention by a fused kernel.
    """
    edge = 2 * shape.vocab_size * shape.hidden_size
    held = block_weights(shape) * WEIGHT_BYTES[weights] + 2 * edge
    read = held - edge  # the embedding is a look-up
    block = rows * length * (20 * shape.hidden_size + 6 * shape.intermediate_size)
    head = min(chunk, rows * scored) * shape.vocab_size * 4 * HEAD_COPIES
    flops = rows * row_flops(shape, length, scored)
    return ForwardEstimate(
        weights_gb=held / 1e9,
        activations_gb=max(block, head) / 1e9,
        compute_ms=flops / (card.teraflops * card.share * 1e9),
        read_ms=read / (card.terabytes_per_second * 1e9),
    )


def table(shape: Shape, card: Card, weights: str = "bfloat16") -> str:
    """A Markdown table over `BATCHES`; half of a canvas of 128 positions is scored."""
    rows = []
    for batch, length in BATCHES:
        figures = estimate(shape, batch, length, scored=64, card=card, weights=weights)
        numbers = (figures.weights_gb, figures.activations_gb, figures.compute_ms, figures.read_ms, figures.forward_ms)
        rows.append([str(batch), str(length), *(f"{number:.1f}" for number in numbers)])
    return markdown.table(HEADS, rows)
