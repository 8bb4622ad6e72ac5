"""The same demands in words that training never used: does the model follow the phrase or the meaning?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gate_models.offline.benchmarks import ccg, cognac, collie, commongen, ifeval
from gate_models.offline.benchmarks.sources import distinct
from gate_models.offline.benchmarks.tasks import SUBTASKS, TaskPrompt

PER_FAMILY: Final = 18


def _count(spec: dict[str, Any]) -> str:
    if spec["relation"] == "at_least":
        return "once or more" if spec["count"] == 1 else f"{spec['count']} times or more"
    return ("not at all", "at most once", "at most twice")[spec["count"] - 1] if spec["count"] < 4 else _at_most(spec)


def _at_most(spec: dict[str, Any]) -> str:
    return f"at most {spec['count'] - 1} times"


def _quoted(words: list[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _length(spec: dict[str, Any]) -> str:
    return f"Give me a version of the following that is about half as long. {spec['source']}"


def _c06a(spec: dict[str, Any]) -> str:
    least, most = spec["min_words"], spec["max_chars"]
    size = f"1) with at least {least} words; 2) with all words having at most {most} characters."
    return f"Please generate a sentence: {size}"


def _avoid(spec: dict[str, Any]) -> str:
    words = ", ".join(spec["forbidden"][:3])
    return f"Give an example of {spec['topic']}, and keep away from these: {words}."


def _capital(spec: dict[str, Any]) -> str:
    return f"In your answer, words in all capitals should occur {_count(spec)}."


WORDINGS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "keywords": lambda spec: f"Make up a sentence in which these all occur: {' '.join(spec['keywords'])}.",
    "length_ratio": _length,
    "sentiment": lambda spec: f"Your answer should leave a {spec['target']} impression.",
    "keyword_frequency": lambda spec: f"In your answer, the word {spec['keyword']} should be found {_count(spec)}.",
    "letter_frequency": lambda spec: f"In your answer, {spec['letter']} should be found {_count(spec)}.",
    "capital_frequency": _capital,
    "no_comma": lambda _: "Your whole answer must be free of commas.",
    "collie_c07": lambda spec: f"Please generate a sentence containing the word {_quoted(spec['words'])}.",
    "collie_c06a": _c06a,
    "avoid": _avoid,
}
_BUILDERS: Final = {**commongen.TASKS, **ccg.TASKS, **ifeval.TASKS, **collie.TASKS, **cognac.TASKS}
FROM: Final = tuple(name for name in SUBTASKS if name != "ccg-multi")
"""Two keywords have no wording of their own; the other families are asked for in turn."""


def held_out_wording(data: Path, rng: random.Random) -> Iterator[TaskPrompt]:
    """Some prompts of each family in turn, each with the constraint in other words; ids say which family."""
    drawn = {name: rng.sample(list(distinct(_BUILDERS[name](data, rng))), PER_FAMILY) for name in FROM}
    for group in zip(*drawn.values(), strict=True):
        for prompt in group:
            subject = prompt.prompt if " about " in prompt.prompt else ""
            wording = WORDINGS[prompt.constraint["type"]](prompt.constraint)
            yield replace(
                prompt,
                id=f"held-out-{prompt.task}-{prompt.id}",
                task="held-out-wording",
                prompt=f"{subject} {wording}".strip(),
                render_constraint=False,
            )


TASKS: Final = {"held-out-wording": held_out_wording}
