"""Avoidance: a WordNet topic without one of its branches, from the dev and test splits of the derived pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from decoding.mini.topics import load_pairs
from gate_models.offline.benchmarks.tasks import TaskPrompt

BITING: Final = 0.05
"""Pairs whose branch has at least this share of the topic's occurrences come first."""
LEAST: Final = 0.01
RARE: Final = 3
"""Topical words seen less often do not count as being on topic."""


def _seen(topic: dict[str, Any], branch: dict[str, Any]) -> dict[str, Any]:
    """The constraint over words that the corpora hold, commonest first; the branch's own name is always forbidden."""
    counts: dict[str, int] = topic["topical_in_corpus"]
    named = {branch["name"], *(word for word in branch["forbidden"] if word in counts)}
    forbidden = sorted(named, key=lambda word: (-counts.get(word, 0), word))
    topical = [word for word, count in counts.items() if count >= RARE]
    return {"type": "avoid", "topic": topic["topic"], "forbidden": forbidden, "topical": topical}


def avoidance(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """Pairs of both held-out splits, those that bite first, each tier in random order."""
    pairs = [(*pair, split) for split in ("test", "dev") for pair in load_pairs(data, split, LEAST)]
    biting = {(t["id"], b["id"]) for split in ("test", "dev") for t, b in load_pairs(data, split, BITING)}
    shuffled = rng.sample(pairs, len(pairs))
    for topic, branch, split in sorted(shuffled, key=lambda pair: (pair[0]["id"], pair[1]["id"]) not in biting):
        name = f"avoid-{split}-{topic['id']}-{branch['id']}"
        yield TaskPrompt(name, "cognac-avoidance", "", _seen(topic, branch), 16, 16)


TASKS: Final = {"cognac-avoidance": avoidance}
