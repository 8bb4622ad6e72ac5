"""IFEval's counted instructions on short texts: keyword, letter and capital frequency, and no comma.

The prompts of IFEval ask for letters and essays that no canvas of 64 positions can hold; subjects come from CommonGen's
dev sets, the relations in IFEval's proportions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gate_models.offline.benchmarks.sources import about, take, unseen_sets
from gate_models.offline.benchmarks.tasks import TaskPrompt


def _count(kind: str, at_least: bool, count: int, **fields: str) -> dict[str, Any]:
    return {"type": kind, **fields, "relation": "at_least" if at_least else "less_than", "count": count}


def keyword_frequency(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """3 in 4: the subject's word at least 2 or 3 times; else less than twice, or never a word that goes with it.

    "Goes with": it is another concept of the same set.
    """
    for index, (chosen, _, words) in enumerate(take(unseen_sets(data), rng)):
        at_least = index % 4 != 3
        count = rng.choice((2, 2, 3)) if at_least else rng.choice((1, 2))
        constraint = _count("keyword_frequency", at_least, count, keyword=words[0])
        prompt = about(words[:1] if at_least or count == 2 else words[1:2], "a short text")
        yield TaskPrompt(f"kw-freq-{chosen.id}", "ifeval-kw-freq", prompt, constraint, 32, 32)


def letter_frequency(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """2 in 3: a letter at least as often as in a reference, or once more; else less often than in it or as often."""
    for index, (chosen, reference, words) in enumerate(take(unseen_sets(data), rng)):
        text, at_least = reference.lower(), index % 3 != 2
        letters = [letter for letter in "abcdefghijklmnopqrstuvwxyz" if text.count(letter) > 1]
        letter = rng.choice(letters)
        count = text.count(letter) + rng.choice((0, 1))
        constraint = _count("letter_frequency", at_least, count, letter=letter)
        yield TaskPrompt(f"letter-{chosen.id}", "ifeval-letter-freq", about(words[:2]), constraint, 16, 16)


def capital_frequency(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """5 in 7: at least 1 to 4 words in capitals; else less than 1 or 2 ("A" and "I" count)."""
    for index, (chosen, _, words) in enumerate(take(unseen_sets(data), rng)):
        at_least = index % 7 < 5
        count = rng.choice((1, 2, 3, 4)) if at_least else rng.choice((1, 2))
        constraint = _count("capital_frequency", at_least, count)
        yield TaskPrompt(f"capital-{chosen.id}", "ifeval-capital-freq", about(words[:2]), constraint, 24, 24)


def no_comma(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """No comma in a text that is long enough to want some."""
    for chosen, _, words in take(unseen_sets(data), rng):
        prompt = about(words[:2], "a short text")
        yield TaskPrompt(f"no-comma-{chosen.id}", "ifeval-no-comma", prompt, {"type": "no_comma"}, 48, 48)


TASKS: Final = {
    "ifeval-kw-freq": keyword_frequency,
    "ifeval-letter-freq": letter_frequency,
    "ifeval-capital-freq": capital_frequency,
    "ifeval-no-comma": no_comma,
}
