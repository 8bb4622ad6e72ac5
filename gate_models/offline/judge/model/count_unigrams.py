"""Count the judge's tokens in the corpora that `mini` is trained on: CommonGen train, COCO, TinyStories, Tatoeba.

`astargate train unigrams --data DIR` writes the shipped table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gate_models.offline.judge.labels.human_text import human_sentences
from gate_models.offline.judge.model.language_model import SmolLM2
from gate_models.offline.judge.model.unigrams import VOCABULARY


def run(data: Path, out: Path) -> None:
    """Count and write."""
    model, counts = SmolLM2(), np.zeros(VOCABULARY, np.int64)
    for _, _, text in human_sentences(data):
        np.add.at(counts, model.ids(text), 1)
    tokens = np.flatnonzero(counts)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, tokens=tokens.astype(np.uint16), counts=counts[tokens].astype(np.uint32))
