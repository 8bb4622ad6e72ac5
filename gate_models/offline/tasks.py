"""Evaluation prompts: built once from the benchmark data, shipped as JSONL, loaded anywhere.

How each task was made stands in `prompts/README.md`. All come from CommonGen's dev split (MIT), which training never sees.
`python -m gate_models.offline.tasks --data DIR` rebuilds the files, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

SEED: Final = 20260727
SIZE: Final = 240
OPENING: Final = "Write one sentence."


@dataclass(frozen=True, slots=True)
class TaskPrompt:
    """One prompt with its constraint and the canvas that its texts fill."""

    id: str
    task: str
    prompt: str
    constraint: dict[str, Any]
    gen_length: int
    steps: int


def prompts_folder() -> Path:
    """Folder of the shipped prompt files."""
    return Path(str(files("gate_models.offline"))) / "prompts"


def task_names() -> list[str]:
    """Tasks that have a shipped prompt file."""
    return sorted(path.stem for path in prompts_folder().glob("*.jsonl"))


def load_task(name: str, count: int | None = None) -> list[TaskPrompt]:
    """The first `count` prompts of a task (all: None). Raises `ValueError` for an unknown task or too large a count."""
    path = prompts_folder() / f"{name}.jsonl"
    if not path.is_file():
        raise ValueError(f"task {name!r} is unknown; tasks: {', '.join(task_names())}")
    prompts = [TaskPrompt(**json.loads(line)) for line in path.read_text().splitlines()]
    if count is not None and not 1 <= count <= len(prompts):
        raise ValueError(f"task {name!r} has {len(prompts)} prompts; --n must be from 1 to {len(prompts)}")
    return prompts[:count]


@dataclass(frozen=True, slots=True)
class DevSet:
    """A CommonGen dev record: for each reference, the surface forms of the concepts in it."""

    id: int
    concepts: int
    references: tuple[tuple[str, tuple[str, ...]], ...]


def read_dev_sets(data: Path) -> list[DevSet]:
    """Dev sets that have a reference which spells every concept as one of its listed forms."""
    sets = []
    for line in (data / "commongen" / "dev.jsonl").read_text().splitlines():
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


def _keywords(words: list[str]) -> dict[str, Any]:
    return {"type": "keywords", "keywords": words}


def _take(sets: list[DevSet], rng: random.Random) -> Iterator[tuple[DevSet, str, list[str]]]:
    """Dev sets in random order, each with one reference and its surface forms in random order."""
    for chosen in rng.sample(sets, len(sets)):
        reference, surface = rng.choice(chosen.references)
        yield chosen, reference, rng.sample(surface, len(surface))


def commongen(sets: list[DevSet], rng: random.Random) -> Iterator[TaskPrompt]:
    """3, 4 and 5 keywords in turn."""
    by_size = {k: _take([s for s in sets if s.concepts == k], rng) for k in (3, 4, 5)}
    for index in range(SIZE):
        chosen, _, words = next(by_size[3 + index % 3])
        yield TaskPrompt(f"commongen-{chosen.id}", "commongen", OPENING, _keywords(words), 16, 16)


def few_keywords(sets: list[DevSet], rng: random.Random) -> Iterator[TaskPrompt]:
    """1 and 2 keywords in turn."""
    for index, (chosen, _, words) in zip(range(SIZE), _take(sets, rng), strict=False):
        yield TaskPrompt(f"few-{chosen.id}", "few-keywords", OPENING, _keywords(words[: 1 + index % 2]), 16, 16)


def ten_keywords(sets: list[DevSet], rng: random.Random) -> Iterator[TaskPrompt]:
    """10 keywords from two or more merged sets."""
    pool = _take(sets, rng)
    for index in range(SIZE):
        words: list[str] = []
        while len(words) < 10:
            try:
                words += [word for word in next(pool)[2] if word not in words]
            except StopIteration:
                pool = _take(sets, rng)
        constraint = _keywords(rng.sample(words[:10], 10))
        yield TaskPrompt(f"k10-{index}", "commongen-k10", "Write a short text.", constraint, 32, 32)


def no_comma(sets: list[DevSet], rng: random.Random) -> Iterator[TaskPrompt]:
    """No comma, with 2 keywords as the subject."""
    for chosen, _, words in list(_take(sets, rng))[:SIZE]:
        constraint = {"type": "all_of", "constraints": [_keywords(words[:2]), {"type": "no_comma"}]}
        yield TaskPrompt(f"no-comma-{chosen.id}", "no-comma", "Write a short text.", constraint, 24, 24)


def word_count(sets: list[DevSet], rng: random.Random) -> Iterator[TaskPrompt]:
    """A range of words around a reference's own, with 1 keyword as the subject, on a canvas that is no hint."""
    for chosen, reference, words in list(_take(sets, rng))[:SIZE]:
        count = min(18, len(reference.split()))
        low = max(1, count - rng.randint(0, 2))
        range_ = {"type": "word_count", "min_words": low, "max_words": low + rng.randint(2, 4)}
        constraint = {"type": "all_of", "constraints": [_keywords(words[:1]), range_]}
        yield TaskPrompt(f"words-{chosen.id}", "word-count", OPENING, constraint, 24, 24)


BUILDERS: Final[dict[str, Callable[[list[DevSet], random.Random], Iterator[TaskPrompt]]]] = {
    "commongen": commongen,
    "few-keywords": few_keywords,
    "commongen-k10": ten_keywords,
    "no-comma": no_comma,
    "word-count": word_count,
}


def build(data: Path, out: Path) -> None:
    """Write every task's file."""
    sets = read_dev_sets(data)
    out.mkdir(parents=True, exist_ok=True)
    for name, builder in BUILDERS.items():
        lines = [json.dumps(asdict(prompt)) + "\n" for prompt in builder(sets, random.Random(f"{SEED}-{name}"))]
        (out / f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds commongen/dev.jsonl")
    parser.add_argument("--out", type=Path, default=prompts_folder())
    arguments = parser.parse_args()
    build(arguments.data, arguments.out)
