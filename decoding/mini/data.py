"""Training batches of masked canvases, from the instruction samplers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from decoding.mini.instructions import FAMILIES, Draw
from decoding.mini.records import Pool, Record, tokenise
from decoding.mini.topics import Topic

__all__ = ["Batch", "Example", "ExampleSampler", "Record", "batches", "collate", "tokenise"]

CANVAS_BUCKET = 4
MAX_CANVAS = 128
ROW_MULTIPLE, MASKED_MULTIPLE = 8, 64
"""Sizes are padded to multiples of these: oneDNN keeps a kernel for every shape that it has met."""
SPAN_SHARE = 0.12
"""Share of canvases whose masked positions are one or two runs, as the blanks of a template are."""
TAIL_SHARE, ROOMY_SHARE = 0.06, 0.2
"""Share of canvases with more room than the bucket leaves. Low-confidence order commits end-of-text wherever it is
likely, so a model that often saw half-empty long canvases would end early on every long one."""
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Example:
    """One row of training: prompt ids, canvas ids (text, end-of-text, end-of-text fill), and whether the prompt is
    dropped.
    """

    prompt: list[int]
    canvas: list[int]
    dropped: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded rows [B, S] and, per masked position, its flat index, target and weight [M]."""

    ids: Tensor
    positions: Tensor
    segments: Tensor
    valid: Tensor
    keep: Tensor
    targets: Tensor
    weights: Tensor


class ExampleSampler:
    """Draws examples: a family, a text with a constraint that it meets, and a canvas a little longer than the text.

    Avoidance is drawn only where `topics` are given. Building one indexes and scores the records (some seconds).
    """

    def __init__(
        self,
        corpora: dict[str, list[Record]],
        tokenizer: Tokenizer,
        end_of_text: int,
        seed: int,
        prompt_dropout: float = 0.12,
        topics: Sequence[Topic] = (),
    ) -> None:
        self.pool = Pool(corpora, tokenizer, topics)
        self.end_of_text = end_of_text
        self.rng = random.Random(seed)
        self.prompt_dropout = prompt_dropout
        self._families = list(FAMILIES)
        self._shares = [share for share, _ in FAMILIES.values()]

    def draw(self, family: str | None = None) -> Draw:
        """A text with its prompt and constraints, of a random family by default."""
        chosen = self.rng.choices(self._families, self._shares)[0] if family is None else family
        sampler = FAMILIES[chosen][1]
        for _ in range(_ATTEMPTS):
            drawn = sampler(self.pool, self.rng)
            if drawn is not None:
                return drawn
        return self.draw("keywords")

    def sample(self) -> Example:
        rng = self.rng
        drawn = self.draw()
        dropped = rng.random() < self.prompt_dropout
        prompt = self.pool.codec.encode_prompt(drawn.prompt)
        tail = rng.random() < (ROOMY_SHARE if drawn.roomy else TAIL_SHARE)
        needed = len(drawn.ids) + (rng.randint(4, 12) if tail else 1)
        length = min(MAX_CANVAS, -(-needed // CANVAS_BUCKET) * CANVAS_BUCKET)
        return Example(prompt, [*drawn.ids, *[self.end_of_text] * (length - len(drawn.ids))], dropped)


def batches(sampler: ExampleSampler, batch_size: int, prompt_offset: int, mask_id: int, seed: int) -> Iterator[Batch]:
    """Endless batches of similar lengths: a pool of 16 batches is sorted by length, cut, and shuffled."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    while True:
        pool = sorted(
            (sampler.sample() for _ in range(16 * batch_size)),
            key=lambda e: (len(e.canvas) + len(e.prompt), len(e.canvas)),
        )
        starts = list(range(0, len(pool), batch_size))
        rng.shuffle(starts)
        for start in starts:
            yield collate(pool[start : start + batch_size], prompt_offset, mask_id, generator)


def collate(examples: list[Example], prompt_offset: int, mask_id: int, generator: torch.Generator) -> Batch:
    """Mask m ~ U{1..L} canvas positions a row (stratified over the batch): the any-order form of the LLaDA SFT loss.

    The mean cross-entropy over the m masked tokens has the same expectation as the 1/t-weighted Bernoulli estimator,
    with less variance. Weights sum to 1 over the batch.
    """
    size = -(-max(len(e.prompt) + len(e.canvas) for e in examples) // ROW_MULTIPLE) * ROW_MULTIPLE
    ids = torch.zeros(len(examples), size, dtype=torch.long)
    positions, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    valid = torch.zeros(len(examples), size, dtype=torch.bool)
    offsets = (torch.rand((), generator=generator) + torch.randperm(len(examples), generator=generator)) / len(examples)
    keep, targets, weights = [], [], []
    for row, example in enumerate(examples):
        p, n = len(example.prompt), len(example.canvas)
        canvas = torch.tensor(example.canvas)
        count = 1 + min(n - 1, int((offsets[row] % 1.0) * n))
        hidden = masked_positions(n, count, generator)
        ids[row, :p] = mask_id if example.dropped else torch.tensor(example.prompt)
        positions[row, :p] = torch.arange(prompt_offset, prompt_offset + p)
        ids[row, p : p + n] = canvas
        ids[row, p + hidden] = mask_id
        positions[row, p : p + n] = torch.arange(n)
        segments[row, p : p + n] = 1
        valid[row, : p + n] = True
        keep.append(row * size + p + hidden)
        targets.append(canvas[hidden])
        weights.append(torch.full((count,), 1.0 / (count * len(examples))))
    missing = -sum(map(len, keep)) % MASKED_MULTIPLE  # repeats of one position, of weight 0
    keep.append(keep[0][:1].expand(missing))
    targets.append(targets[0][:1].expand(missing))
    weights.append(torch.zeros(missing))
    return Batch(ids, positions, segments, valid, torch.cat(keep), torch.cat(targets), torch.cat(weights))


def masked_positions(length: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` of `length` positions: any set of them, or (a share `SPAN_SHARE`) one or two runs."""
    if float(torch.rand((), generator=generator)) >= SPAN_SHARE:
        return torch.randperm(length, generator=generator)[:count]
    first = int(torch.randint(1, count + 1, (), generator=generator))
    free = length - count
    cuts = sorted(int(torch.randint(0, free + 1, (), generator=generator)) for _ in range(2))
    return torch.cat([torch.arange(cuts[0], cuts[0] + first), torch.arange(cuts[1] + first, cuts[1] + count)])
