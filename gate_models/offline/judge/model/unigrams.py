"""How common each of the judge's tokens is in text by people: what SLOR compares a model's surprisal with."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.judge.model.files import artifact_folder

VOCABULARY: Final = 49_152


def unigram_nats(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Surprisal [V] of each token alone, half a count added everywhere."""
    smoothed = counts + 0.5
    nats: NDArray[np.float32] = -np.log(smoothed / smoothed.sum()).astype(np.float32)
    return nats


@cache
def shipped_unigrams() -> NDArray[np.float32]:
    """Surprisals [V] of the committed table (`count_unigrams` makes it)."""
    with np.load(artifact_folder() / "unigrams.npz") as stored:
        counts = np.zeros(VOCABULARY, np.int64)
        counts[stored["tokens"]] = stored["counts"]
    return unigram_nats(counts)
