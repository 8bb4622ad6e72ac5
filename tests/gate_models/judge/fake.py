"""A language model for tests: words are tokens, a word is as surprising as it is long."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from gate_models.offline.judge.model.language_model import Surprisals, written
from gate_models.offline.judge.model.unigrams import VOCABULARY


class FakeModel:
    """Remembers the texts that it was shown."""

    def __init__(self, name: str = "fake") -> None:
        self.name = name
        self.seen: list[str] = []

    def surprisals(self, texts: Sequence[str]) -> list[Surprisals]:
        self.seen += texts
        return [_one(written(text)) for text in texts]


def _one(text: str) -> Surprisals:
    words = text.split()
    ids = np.array([zlib.crc32(word.encode()) % VOCABULARY for word in words], np.int32)
    nats = np.array([len(word) for word in words], np.float32)
    end = np.array([nats.mean(), nats.max(), 1.0, len(nats)] if words else [0.0] * 4, np.float32)
    return Surprisals(ids, nats, nats / 10, end)
