"""Controlled generation: length relative to a source, sentiment, and several demands at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from decoding.constraints.paper.length import LengthRatio
from gate_models.offline.benchmarks.sources import OPENING, about, all_of, keywords, take, unseen_sets
from gate_models.offline.benchmarks.tasks import TaskPrompt


def _sentence(reference: str) -> str:
    plain = reference.replace(" .", ".").replace("\u2019", "'").strip()
    return plain if plain[-1] in ".!?" else plain + "."


def length(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """A source of two references to one dev set, 18 to 28 words; the answer has 0.4 to 0.8 times as many."""
    for chosen in rng.sample(sets := unseen_sets(data), len(sets)):
        texts = [_sentence(reference) for reference, _ in chosen.references]
        if len(texts) < 2:
            continue
        source = " ".join(rng.sample(texts, 2))
        constraint = LengthRatio(source)
        if 18 <= constraint.source_words <= 28:
            yield TaskPrompt(f"length-{chosen.id}", "ccg-length", "", constraint.to_spec(), 24, 24)


def sentiment(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """Positive and negative in turn, with a subject of two concepts."""
    for index, (chosen, _, words) in enumerate(take(unseen_sets(data), rng)):
        target = ("positive", "negative")[index % 2]
        constraint = {"type": "sentiment", "target": target, "threshold": 0.5}
        prompt = about(words[:2])
        yield TaskPrompt(f"sentiment-{chosen.id}", "ccg-sentiment", prompt, constraint, 24, 24)


def multi(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """2, 3 and 4 keywords jointly, from 3 up as two demands of one or two words."""
    sets = [chosen for chosen in unseen_sets(data) if chosen.concepts >= 4]
    for index, (chosen, _, words) in enumerate(take(sets, rng)):
        count = 2 + index % 3
        pair, rest = keywords(words[:2]), words[2:count]
        constraint = all_of(pair, keywords(rest)) if rest else pair
        yield TaskPrompt(f"multi-{chosen.id}", "ccg-multi", OPENING, constraint, 16, 16)


def multi_mixed(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """2 or 3 keywords, with a range of words around a reference's own, or without commas, in turn."""
    for index, (chosen, reference, words) in enumerate(take(unseen_sets(data), rng)):
        other: dict[str, Any] = {"type": "no_comma"}
        if index % 2 == 0:
            low = max(3, min(18, len(reference.split())) - rng.randint(0, 2))
            other = {"type": "word_count", "min_words": low, "max_words": low + rng.randint(2, 4)}
        constraint = all_of(keywords(words[: 2 + index // 2 % 2]), other)
        yield TaskPrompt(f"multi-mixed-{chosen.id}", "ccg-multi-mixed", OPENING, constraint, 24, 24)


TASKS: Final = {"ccg-length": length, "ccg-sentiment": sentiment, "ccg-multi": multi, "ccg-multi-mixed": multi_mixed}
