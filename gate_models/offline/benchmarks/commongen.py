"""CommonGen keywords: 3, 4, 5 and 10 of them, and the older mixed tasks on the same sets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gate_models.offline.benchmarks.sources import (
    OPENING,
    SIZE,
    DevSet,
    all_of,
    keywords,
    read_dev_sets,
    take,
    unseen_sets,
)
from gate_models.offline.benchmarks.tasks import TaskPrompt

CANVAS: Final = {3: 16, 4: 16, 5: 24}
"""References have 11, 14 and 16 tokens on average."""


def _of_size(size: int, data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    sets = [chosen for chosen in unseen_sets(data) if chosen.concepts == size]
    for chosen, _, words in list(take(sets, rng))[:SIZE]:
        task, canvas = f"commongen-k{size}", CANVAS[size]
        yield TaskPrompt(f"k{size}-{chosen.id}", task, OPENING, keywords(words), canvas, canvas)


def three(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """3 keywords."""
    return _of_size(3, data, rng)


def four(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """4 keywords."""
    return _of_size(4, data, rng)


def five(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """5 keywords."""
    return _of_size(5, data, rng)


def ten(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """10 keywords from two or more merged sets."""
    sets = read_dev_sets(data)
    pool = take(sets, rng)
    for index in range(SIZE):
        words: list[str] = []
        while len(words) < 10:
            try:
                words += [word for word in next(pool)[2] if word not in words]
            except StopIteration:
                pool = take(sets, rng)
        constraint = keywords(rng.sample(words[:10], 10))
        yield TaskPrompt(f"k10-{index}", "commongen-k10", "Write a short text.", constraint, 32, 32)


def mixed(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """3, 4 and 5 keywords in turn."""
    sets = read_dev_sets(data)
    by_size: dict[int, Iterator[tuple[DevSet, str, list[str]]]] = {
        k: take([s for s in sets if s.concepts == k], rng) for k in (3, 4, 5)
    }
    for index in range(SIZE):
        chosen, _, words = next(by_size[3 + index % 3])
        yield TaskPrompt(f"commongen-{chosen.id}", "commongen", OPENING, keywords(words), 16, 16)


def few(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """1 and 2 keywords in turn."""
    for index, (chosen, _, words) in zip(range(SIZE), take(read_dev_sets(data), rng), strict=False):
        yield TaskPrompt(f"few-{chosen.id}", "few-keywords", OPENING, keywords(words[: 1 + index % 2]), 16, 16)


def no_comma(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """No comma, with 2 keywords as the subject."""
    for chosen, _, words in list(take(read_dev_sets(data), rng))[:SIZE]:
        constraint = all_of(keywords(words[:2]), {"type": "no_comma"})
        yield TaskPrompt(f"no-comma-{chosen.id}", "no-comma", "Write a short text.", constraint, 24, 24)


def word_count(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """A range of words around a reference's own, with 1 keyword as the subject, on a canvas that is no hint."""
    for chosen, reference, words in list(take(read_dev_sets(data), rng))[:SIZE]:
        count = min(18, len(reference.split()))
        low = max(1, count - rng.randint(0, 2))
        range_ = {"type": "word_count", "min_words": low, "max_words": low + rng.randint(2, 4)}
        yield TaskPrompt(f"words-{chosen.id}", "word-count", OPENING, all_of(keywords(words[:1]), range_), 24, 24)


TASKS: Final = {
    "commongen-k3": three,
    "commongen-k4": four,
    "commongen-k5": five,
    "commongen-k10": ten,
    "commongen": mixed,
    "few-keywords": few,
    "no-comma": no_comma,
    "word-count": word_count,
}
