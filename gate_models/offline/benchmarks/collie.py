"""COLLIE's c07 and c06a: the targets of every record. Their example sentences stay behind; some are under copyright."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gate_models.offline.benchmarks.sources import OPENING
from gate_models.offline.benchmarks.tasks import TaskPrompt

_SOURCES: Final = ("wiki", "ccnews", "guten")
CANVASES: Final = (16, 24, 32, 48, 64)


def _records(data: Path, family: str, rng: random.Random) -> list[dict[str, Any]]:
    paths = [data / "collie" / f"{source}_{family}.jsonl" for source in _SOURCES]
    records = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return rng.sample(records, len(records))


def canvas_for(words: int) -> int:
    """The smallest canvas for `words` words, their full stop, and a few pieces and marks."""
    return next(canvas for canvas in CANVASES if canvas >= words + words // 8 + 3)


def c07(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """Three words that must occur."""
    for record in _records(data, "c07", rng):
        constraint = {"type": "collie_c07", "words": record["targets"]}
        yield TaskPrompt(record["id"], "collie-c07", OPENING, constraint, 24, 24)


def c06a(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """At least n words of at most m characters, on a canvas that just holds n words."""
    for record in _records(data, "c06a", rng):
        least, most = record["targets"]
        constraint = {"type": "collie_c06a", "min_words": least, "max_chars": most}
        canvas = canvas_for(least)
        yield TaskPrompt(record["id"], "collie-c06a", OPENING, constraint, canvas, canvas)


TASKS: Final = {"collie-c07": c07, "collie-c06a": c06a}
