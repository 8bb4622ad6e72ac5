"""Self-supervised instruction data: sentences, the constraints that they happen to meet, and batches of masked
canvases.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from decoding.mini.corpus import Sentence

STOP_WORDS = frozenset(
    """
    a an the and or but if then than that this these those of in on at by for from to with into onto over
    under as is are was were be been being am do does did done doing has have had having he she it they we
    you i me him her them us his hers its their our my your mine yours who whom whose which what when where
    why how not no so too very can could will would shall should may might must there here up down out off
    again just all any some each every both few more most other such only own same s t d ll re ve m don didn
    doesn isn wasn won one's
    """.split()
)
SOURCE_WEIGHTS = {"commongen": 0.5, "coco": 0.17, "tatoeba": 0.18, "tinystories": 0.15}
KEYWORD_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
KEYWORD_WEIGHTS = (8, 12, 28, 20, 12, 3, 2, 2, 2, 11)
_OPENINGS = (
    "write one sentence.",
    "write one sentence.",
    "write a sentence.",
    "write a short text.",
    "describe a scene.",
    "tell me something.",
    "",
)
_KEYWORD_PHRASES = (
    "use the words: {}.",
    "use the words: {}.",
    "use the words: {}.",
    "include the words {}.",
    "the text must contain {}.",
    "keywords: {}.",
)
_NO_COMMA_PHRASES = ("do not use any commas.", "do not use any commas.", "use no commas.", "write without commas.")
CANVAS_BUCKET = 4


@dataclass(frozen=True, slots=True)
class Record:
    """A tokenised sentence with what instructions can be drawn from it."""

    ids: tuple[int, ...]
    content: tuple[str, ...]
    concepts: tuple[str, ...]
    words: int
    comma: bool


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


def tokenise(sentences: list[Sentence], tokenizer: Tokenizer, unknown: int) -> list[Record]:
    """Records of the sentences that the vocabulary can spell in 60 tokens."""
    records = []
    for start in range(0, len(sentences), 4096):
        chunk = sentences[start : start + 4096]
        encodings = tokenizer.encode_batch([sentence.text for sentence in chunk], add_special_tokens=False)
        for sentence, encoding in zip(chunk, encodings, strict=True):
            if len(encoding.ids) > 60 or unknown in encoding.ids:
                continue
            words = re.findall(r"[a-z0-9]+", sentence.text)
            content = tuple(dict.fromkeys(word for word in words if word not in STOP_WORDS and len(word) > 1))
            records.append(
                Record(
                    tuple(encoding.ids), content, sentence.concepts, len(sentence.text.split()), "," in sentence.text
                )
            )
    return records


def listing(words: list[str], rng: random.Random) -> str:
    """Words as a list: commas, or commas and a final "and"."""
    if len(words) > 1 and rng.random() < 0.3:
        return ", ".join(words[:-1]) + " and " + words[-1]
    return ", ".join(words)


def word_count_phrase(words: int, rng: random.Random) -> str:
    """A range, lower or upper bound that holds for a text of `words` words."""
    low, high = max(1, words - rng.randrange(4)), words + rng.randrange(4)
    kind = rng.random()
    if kind < 0.6:
        return f"use between {low} and {high} words."
    return f"use at least {low} words." if kind < 0.8 else f"use at most {high} words."


class ExampleSampler:
    """Draws examples: a source, a sentence, and a random subset of the instructions that hold for it."""

    def __init__(
        self,
        corpora: dict[str, list[Record]],
        tokenizer: Tokenizer,
        end_of_text: int,
        seed: int,
        prompt_dropout: float = 0.12,
    ) -> None:
        self.corpora = corpora
        self.sources = [source for source in SOURCE_WEIGHTS if source in corpora]
        self.source_weights = [SOURCE_WEIGHTS[source] for source in self.sources]
        self.tokenizer = tokenizer
        self.end_of_text = end_of_text
        self.rng = random.Random(seed)
        self.prompt_dropout = prompt_dropout

    def prompt_text(self, record: Record) -> str:
        """Instructions in random order after an opening; roughly one text in twelve has none."""
        rng = self.rng
        parts = []
        if rng.random() < 0.88 and record.content:
            parts.append(rng.choice(_KEYWORD_PHRASES).format(listing(self.keywords(record), rng)))
        if not record.comma and rng.random() < 0.15:
            parts.append(rng.choice(_NO_COMMA_PHRASES))
        if rng.random() < 0.2:
            parts.append(word_count_phrase(record.words, rng))
        rng.shuffle(parts)
        opening = rng.choice(_OPENINGS) or ("" if parts else "write one sentence.")
        return " ".join([opening, *parts]).strip()

    def keywords(self, record: Record) -> list[str]:
        """The benchmark concepts of the sentence three times in four where it has them, else words of its own."""
        rng = self.rng
        if record.concepts and rng.random() < 0.7:
            chosen = list(record.concepts)
        else:
            count = min(rng.choices(KEYWORD_COUNTS, KEYWORD_WEIGHTS)[0], len(record.content))
            chosen = rng.sample(record.content, count)
        rng.shuffle(chosen)
        return chosen

    def sample(self) -> Example:
        rng = self.rng
        record = rng.choice(self.corpora[rng.choices(self.sources, self.source_weights)[0]])
        dropped = rng.random() < self.prompt_dropout
        prompt = self.tokenizer.encode(self.prompt_text(record), add_special_tokens=False).ids
        room = rng.randint(1, 4) if rng.random() < 0.85 else rng.randint(5, 20)
        length = min(64, -(-(len(record.ids) + room) // CANVAS_BUCKET) * CANVAS_BUCKET)
        return Example(prompt, [*record.ids, *[self.end_of_text] * (length - len(record.ids))], dropped)


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
    size = max(len(e.prompt) + len(e.canvas) for e in examples)
    ids = torch.zeros(len(examples), size, dtype=torch.long)
    positions, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    valid = torch.zeros(len(examples), size, dtype=torch.bool)
    offsets = (torch.rand((), generator=generator) + torch.randperm(len(examples), generator=generator)) / len(examples)
    keep, targets, weights = [], [], []
    for row, example in enumerate(examples):
        p, n = len(example.prompt), len(example.canvas)
        canvas = torch.tensor(example.canvas)
        count = 1 + min(n - 1, int((offsets[row] % 1.0) * n))
        hidden = torch.randperm(n, generator=generator)[:count]
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
    return Batch(ids, positions, segments, valid, torch.cat(keep), torch.cat(targets), torch.cat(weights))
