"""`astargate train fluency`: the shipped judge of fluency, trained on text that `mini` was not trained on.

Sources: CommonGen's test references, and its train sentences that the model's corpus left out (image alt texts with
other openings); the Conceptual Captions validation captions; the NLVR2 sentences. `--data DIR` holds them.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from decoding.mini.corpus import clean, load_corpora
from gate_models.offline.runs.result_file import write_json
from gate_models.offline.scorers import ngram
from gate_models.offline.scorers.ngram import NgramModel, Score

SEED: Final = 20260727
HELD_OUT: Final = 20
"""One text in so many is held out, by a hash of the text."""


OTHER: Final = 1500
"""Texts of each source that `mini` was trained on, to show how far the judge reaches beyond its training."""


def _commongen_targets(data: Path) -> Iterator[str]:
    for name in ("train.jsonl.gz", "train_v1_0.jsonl.gz"):
        with gzip.open(data / "commongen" / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from json.loads(line)["targets"]


def references(data: Path, split: str) -> list[str]:
    """Cleaned CommonGen references of `dev` or `test`."""
    lines = (data / "commongen" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [text for line in lines for target in json.loads(line)["targets"] if (text := clean(target))]


def unused_texts(data: Path) -> dict[str, list[str]]:
    """Source -> cleaned texts; the model was trained on none of them."""
    used = {sentence.text for group in load_corpora(data).values() for sentence in group}
    sources: dict[str, Iterator[str]] = {
        "commongen test references": iter(references(data, "test")),
        "commongen train, left out": (text for target in _commongen_targets(data) if (text := clean(target))),
        "conceptual captions": _corpus(data, "conceptual_captions_val"),
        "nlvr2": _corpus(data, "nlvr2_sentences"),
    }
    seen, texts = set(used), dict[str, list[str]]()
    for source, stream in sources.items():
        for text in stream:
            if text not in seen:
                seen.add(text)
                texts.setdefault(source, []).append(text)
    return texts


def _corpus(data: Path, name: str) -> Iterator[str]:
    with gzip.open(data / "corpus" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
        yield from (text for line in lines if (text := clean(line)))


def is_held_out(text: str) -> bool:
    return zlib.crc32(text.encode()) % HELD_OUT == 0


def shuffled(text: str, rng: random.Random) -> str:
    """The words of `text` in random order, its end mark kept."""
    words = text.rstrip(".!?").split()
    return " ".join(rng.sample(words, len(words))) + text[len(text.rstrip(".!?")) :]


def stuttering(text: str, rng: random.Random) -> str:
    """`text` with a fifth of its words (one at least) written twice."""
    words = text.split()
    twice = set(rng.sample(range(len(words)), max(1, len(words) // 5)))
    return " ".join(word for i, w in enumerate(words) for word in ([w.rstrip(".!?,")] * (i in twice) + [w]))


def perplexity(scores: list[Score]) -> float:
    return float(np.exp(sum(s.nll for s in scores) / sum(s.tokens for s in scores)))


def preference(model: NgramModel, texts: list[str], worse: list[str]) -> float:
    """Share of texts whose NLL a token is lower than that of their spoiled twin."""
    pairs = zip(model.score(texts), model.score(worse), strict=True)
    return sum(a.nll / a.tokens < b.nll / b.tokens for a, b in pairs) / len(texts)


def measure(model: NgramModel, texts: list[str]) -> dict[str, float]:
    """Perplexity of `texts`, and how often they are preferred to their shuffled and their stuttering form."""
    rng = random.Random(SEED)
    return {
        "texts": len(texts),
        "perplexity": round(perplexity(model.score(texts)), 1),
        "perplexity_shuffled": round(perplexity(model.score([shuffled(t, rng) for t in texts])), 1),
        "preferred_to_shuffled": round(preference(model, texts, [shuffled(t, rng) for t in texts]), 4),
        "preferred_to_stuttering": round(preference(model, texts, [stuttering(t, rng) for t in texts]), 4),
    }


def train(data: Path, out: Path) -> dict[str, Any]:
    """Train, measure, write `ngram.npz` and `card.json` to `out`, and return the card."""
    sources = unused_texts(data)
    texts = [text for group in sources.values() for text in group]
    model = ngram.train(text for text in texts if not is_held_out(text))
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "ngram.npz")
    model = NgramModel.load(out / "ngram.npz")
    held_out, dev = [text for text in texts if is_held_out(text)], references(data, "dev")
    measured = {"held-out text": measure(model, held_out), "CommonGen dev references": measure(model, dev)}
    for source, group in load_corpora(data).items():
        sample = random.Random(SEED).sample(group, min(len(group), OTHER))
        measured[f"mini's training text: {source}"] = measure(model, [sentence.text for sentence in sample])
    card = {
        "model": "modified Kneser-Ney, words, order 3",
        "words": len(model.words),
        "ngrams": [len(table.keys) for table in model.tables],
        "bytes": (out / "ngram.npz").stat().st_size,
        "texts": {source: len(group) for source, group in sources.items()},
        "measured": measured,
    }
    write_json(out / "card.json", card)
    return card
