"""A masked diffusion language model small enough to enumerate, on which the tests know every answer exactly.

Its logits are seeded tables over every canvas state.

Token ids 0..A-1 are the alphabet, the last id is MASK. Every model needs an end-of-text id. With `end_is_token` it is
the last letter of the alphabet, an ordinary token that may be sampled, deferred or suppressed per request; without, it
is an id of its own between the alphabet and MASK, which the model's spec suppresses. The columns of MASK and of a
suppressed END hold large logits all the same, so that a decoder that forgets to suppress them shows it.

A state is a canvas of L positions; its number is sum_i digit_i (A + 1)^i with digit A for MASK. Logits are a function
of the whole canvas and of whether the prompt is hidden (the unconditional branch), in float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from decoding.models.protocol import ModelSpec, TextCodec

LETTERS: Final = "abcdefgh"
PROMPT: Final = (0,)
NEVER: Final = -1.0e3
"""A logit this low has probability exactly 0 in float64 beside ordinary ones, and stays finite."""

Logits = Callable[[tuple[int | None, ...]], Sequence[Sequence[float]]]
"""Canvas (None: MASK) -> logits of the alphabet [L][A]."""


@dataclass(frozen=True, slots=True)
class ToyCanvas:
    """Numbers the states of L positions over A tokens and MASK."""

    alphabet: int
    length: int

    @property
    def states(self) -> int:
        """(A + 1)^L."""
        return int((self.alphabet + 1) ** self.length)

    @property
    def powers(self) -> Tensor:
        """[L] int64: weight of each position's digit in a state's number."""
        return torch.tensor([(self.alphabet + 1) ** i for i in range(self.length)])

    @property
    def digits(self) -> Tensor:
        """[states, L] int64; digit A is MASK."""
        return torch.arange(self.states)[:, None] // self.powers % (self.alphabet + 1)

    def number(self, tokens: Iterable[int | None]) -> int:
        """Number of a canvas given as tokens, None where masked."""
        digits = [self.alphabet if token is None else token for token in tokens]
        if len(digits) != self.length or not all(0 <= d <= self.alphabet for d in digits):
            raise ValueError(f"a canvas has {self.length} entries from 0 to {self.alphabet - 1} or None, got {digits}")
        return sum(d * (self.alphabet + 1) ** i for i, d in enumerate(digits))

    def tokens(self, number: int) -> tuple[int | None, ...]:
        """The canvas of a state's number."""
        base = self.alphabet + 1
        digits = [number // base**i % base for i in range(self.length)]
        return tuple(None if d == self.alphabet else d for d in digits)

    @property
    def empty(self) -> int:
        """The state of L masks, where decoding starts."""
        return self.states - 1


@dataclass(frozen=True, slots=True)
class ToyTables:
    """Conditional and unconditional logits [states, L, vocabulary], float64."""

    canvas: ToyCanvas
    conditional: Tensor
    unconditional: Tensor
    end_is_token: bool = False
    attention: Tensor | None = None
    """[states, L, L]: what canvas positions pay each other, where the model tells it."""

    @property
    def mask_id(self) -> int:
        return self.end_id + 1

    @property
    def end_id(self) -> int:
        return self.canvas.alphabet - 1 if self.end_is_token else self.canvas.alphabet

    def branch(self, *, conditional: bool) -> Tensor:
        """[states, L, A]: logits of the alphabet."""
        table = self.conditional if conditional else self.unconditional
        return table[..., : self.canvas.alphabet]


def _with_suppressed(logits: Tensor, canvas: ToyCanvas, end_is_token: bool, seed: int) -> Tensor:
    extra = 1 if end_is_token else 2
    loud = np.random.Generator(np.random.Philox(seed)).normal(4.0, 1.0, (canvas.states, canvas.length, extra))
    return torch.cat([logits, torch.from_numpy(loud)], -1)


def random_tables(
    seed: int, alphabet: int = 3, length: int = 3, spread: float = 1.0, end_is_token: bool = False
) -> ToyTables:
    """Independent normal logits of standard deviation `spread` for each state, position, token and branch.

    Ties have probability 0; `exact_step` refuses the tables where two scores come within 1e-9.
    """
    canvas = ToyCanvas(alphabet, length)
    generator = np.random.Generator(np.random.Philox(seed))
    shape = (canvas.states, length, alphabet)
    both = [torch.from_numpy(generator.normal(0.0, spread, shape)) for _ in range(2)]
    conditional, unconditional = (_with_suppressed(b, canvas, end_is_token, seed + 1) for b in both)
    return ToyTables(canvas, conditional, unconditional, end_is_token)


def attending(tables: ToyTables, seed: int) -> ToyTables:
    """`tables` of a model that also tells its attention: a random one for each state."""
    canvas = tables.canvas
    shape = canvas.states, canvas.length, canvas.length + len(PROMPT)
    scores = torch.from_numpy(np.random.Generator(np.random.Philox(seed)).normal(0.0, 1.0, shape))
    return replace(tables, attention=scores.softmax(-1)[..., len(PROMPT) :])


def designed_tables(canvas: ToyCanvas, conditional: Logits, unconditional: Logits | None = None) -> ToyTables:
    """Tables from functions of the canvas; without `unconditional` guidance has no direction (u = c)."""
    states = [canvas.tokens(number) for number in range(canvas.states)]
    tables = [
        torch.tensor([logits(state) for state in states], dtype=torch.float64)
        for logits in (conditional, unconditional or conditional)
    ]
    plain, hidden = (_with_suppressed(table, canvas, False, 0) for table in tables)
    return ToyTables(canvas, plain, hidden)


@dataclass(frozen=True, slots=True)
class ToyCodec:
    """One letter a token; every prompt becomes the same single id."""

    alphabet: int

    def encode_prompt(self, prompt: str) -> list[int]:
        return list(PROMPT)

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        return list(PROMPT)

    def encode(self, text: str) -> list[int]:
        return [LETTERS[: self.alphabet].index(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces(ids))

    def settled(self, ids: list[int]) -> str:
        return self.decode(ids)

    def pieces(self, ids: list[int]) -> list[str]:
        return [LETTERS[i] if i < self.alphabet else "?" for i in ids]


class ToyModel:
    """The `DenoisingModel` of a pair of tables: a row's features are its logits."""

    def __init__(self, tables: ToyTables) -> None:
        canvas = tables.canvas
        self.tables = tables
        self.device = torch.device("cpu")
        self.codec: TextCodec = ToyCodec(canvas.alphabet)
        suppressed = (tables.mask_id,) if tables.end_is_token else (tables.end_id, tables.mask_id)
        digest = hashlib.sha256()
        for table in (tables.conditional, tables.unconditional):
            digest.update(table.numpy().tobytes())
        self.spec = ModelSpec(
            name="toy",
            hash=digest.hexdigest()[:16],
            architecture="toy",
            vocab_size=tables.mask_id + 1,
            mask_id=tables.mask_id,
            end_ids=(tables.end_id,),
            suppressed_ids=suppressed,
            max_prompt=len(PROMPT),
            max_canvas=canvas.length,
            default_canvas=canvas.length,
            text_margins=(0.0, 0.0),  # the exact law knows none
            gives_attention=tables.attention is not None,
        )

    def encode(self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, *, always_mask: bool) -> Tensor:
        """Logits [B * S, V] of canvas positions; zeros elsewhere and in rows that hold no canvas of length L."""
        canvas = self.tables.canvas
        rows, width = ids.shape
        features = torch.zeros(rows, width, self.spec.vocab_size, dtype=torch.float64)
        real = torch.nonzero(lengths - prompt_lengths == canvas.length).flatten()
        at = prompt_lengths[real, None] + torch.arange(canvas.length)
        tokens = ids[real[:, None], at]
        digits = torch.where(tokens == self.spec.mask_id, canvas.alphabet, tokens)
        if bool((digits > canvas.alphabet).any()):
            raise ValueError("a canvas holds an id that is neither a letter nor MASK")
        states = digits @ canvas.powers
        hidden = ids[real, 0] == self.spec.mask_id
        tables = self.tables
        logits = torch.where(hidden[:, None, None], tables.unconditional[states], tables.conditional[states])
        features[real[:, None], at] = logits
        return features.flatten(0, 1)

    def encode_attending(
        self, ids: Tensor, prompt_lengths: Tensor, lengths: Tensor, rows: Sequence[int], *, always_mask: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits as `encode` has them, and the table's attention of each of `rows`."""
        canvas, table = self.tables.canvas, self.tables.attention
        assert table is not None  # jobs that ask for it are refused
        texts = [ids[row, int(prompt_lengths[row]) : int(lengths[row])] for row in rows]
        states = [int(torch.where(text == self.spec.mask_id, canvas.alphabet, text) @ canvas.powers) for text in texts]
        features = self.encode(ids, prompt_lengths, lengths, always_mask=always_mask)
        return features, [table[state] for state in states]

    def project(self, features: Tensor) -> Tensor:
        """Features are logits already."""
        return features
