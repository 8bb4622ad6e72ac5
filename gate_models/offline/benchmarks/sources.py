"""CommonGen's dev split: sentences and words that training never saw, from which most tasks take their subjects."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gate_models.offline.benchmarks.tasks import TaskPrompt

SEED: Final = 20260727
SIZE: Final = 240
OPENING: Final = "Write one sentence."
IN_TRAIN: Final = frozenset({903})
"""Dev sets whose concept set also occurs in CommonGen's train split."""


@dataclass(frozen=True, slots=True)
class DevSet:
    """A CommonGen dev record: for each reference, the surface forms of the concepts in it."""

    id: int
    concepts: int
    references: tuple[tuple[str, tuple[str, ...]], ...]


def read_dev_sets(data: Path) -> list[DevSet]:
    """Dev sets that have a reference which spells every concept as one of its listed forms."""
    sets = []
    for line in (data / "commongen" / "dev.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        references = []
        for target in record["targets"]:
            words = [word.strip(".,!?;:'\"").lower() for word in target.split()]
            surface = [
                next((w for w in words if w in record["forms"][concept]), None) for concept in record["concepts"]
            ]
            if all(surface) and len(set(surface)) == len(surface):
                references.append((target, tuple(word for word in surface if word)))
        if references:
            sets.append(DevSet(record["id"], len(record["concepts"]), tuple(references)))
    return sets


def unseen_sets(data: Path) -> list[DevSet]:
    """Dev sets that are not in the train split."""
    return [chosen for chosen in read_dev_sets(data) if chosen.id not in IN_TRAIN]


def take(sets: list[DevSet], rng: random.Random) -> Iterator[tuple[DevSet, str, list[str]]]:
    """Dev sets in random order, each with one reference and its surface forms in random order."""
    for chosen in rng.sample(sets, len(sets)):
        reference, surface = rng.choice(chosen.references)
        yield chosen, reference, rng.sample(surface, len(surface))


def distinct(prompts: Iterable[TaskPrompt], size: int = SIZE) -> Iterator[TaskPrompt]:
    """The first `size` prompts that say different things."""
    seen: set[str] = set()
    for prompt in prompts:
        if len(seen) == size:
            return
        if prompt.text() not in seen:
            seen.add(prompt.text())
            yield prompt


def keywords(words: list[str]) -> dict[str, Any]:
    return {"type": "keywords", "keywords": words}


def all_of(*constraints: dict[str, Any]) -> dict[str, Any]:
    return {"type": "all_of", "constraints": list(constraints)}


def about(words: list[str], what: str = "a sentence") -> str:
    """A prompt that names its subject; the constraint does not test it."""
    return f"Write {what} about {' and '.join(words)}."
