"""Reads a file of tasks of one's own, and writes the prompt file of each family that the measurements read.

A line of the file is a JSON object: `prompt`, `constraint`, `family` (left out: the constraint's own) and
`render_constraint`. A prompt is named by its content, so that equal ones fall together and never stand in two of the
sets train, calibrate and audit.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from decoding.constraints import Constraint, ConstraintError, parse
from decoding.constraints.registry import FAMILY_NAME
from gate_models.offline.benchmarks.splits import SPLITS, split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt

FIELDS: Final = ("prompt", "constraint", "family", "render_constraint")
FEWEST: Final = 24
"""Prompts of a family: fewer leave an audit of five prompts, which shows nothing."""


class TasksError(ValueError):
    """A file of tasks that cannot be used; the message names the line and what to do."""


@dataclass(frozen=True, slots=True)
class Task:
    """One line of the file."""

    prompt: str
    constraint: Constraint
    family: str
    render_constraint: bool

    @property
    def id(self) -> str:
        """Twelve hex digits of what is asked."""
        asked = json.dumps([self.prompt, self.constraint.to_spec(), self.render_constraint], sort_keys=True)
        return hashlib.blake2b(asked.encode(), digest_size=6).hexdigest()


def read_tasks(path: Path) -> dict[str, list[Task]]:
    """The tasks of a JSONL file by family, each once. Raises `TasksError`, `OSError`."""
    tasks: dict[str, dict[str, Task]] = defaultdict(dict)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise TasksError(f"{path} is not UTF-8 text: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            task = _task(line, f"{path}, line {number}")
            tasks[task.family].setdefault(task.id, task)
    if not tasks:
        raise TasksError(f'{path} holds no task; a line is {{"prompt": ..., "constraint": {{...}}, "family": ...}}')
    for family, of_family in tasks.items():
        if len(of_family) < FEWEST:
            raise TasksError(
                f"{path}: family '{family}' has {len(of_family)} different tasks, a gate needs at least {FEWEST}, "
                "and some hundred to be sharp"
            )
    return {family: list(of_family.values()) for family, of_family in tasks.items()}


def _task(line: str, where: str) -> Task:
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise TasksError(f"{where} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise TasksError(f"{where} is not a JSON object")
    if unknown := sorted(given.keys() - set(FIELDS)):
        raise TasksError(f"{where} has the unknown field '{unknown[0]}'; fields: {', '.join(FIELDS)}")
    prompt, family = given.get("prompt", ""), given.get("family")
    render = given.get("render_constraint", True)
    if not isinstance(prompt, str) or not isinstance(render, bool):
        raise TasksError(f"{where}: prompt must be a text, render_constraint true or false")
    if not isinstance(given.get("constraint"), dict):
        raise TasksError(f"{where}: constraint is missing; it says what a good text is, as in POST /generate")
    try:
        constraint = parse(given["constraint"])
    except ConstraintError as error:
        raise TasksError(f"{where}: constraint{f'.{error.param}' if error.param else ''} {error}") from None
    family = constraint.family if family is None else family
    if not isinstance(family, str) or not FAMILY_NAME.fullmatch(family):
        raise TasksError(f"{where}: family must be a name of 1 to 64 letters, digits, dots, hyphens and underscores")
    if not prompt.strip() and not render:
        raise TasksError(f"{where}: prompt is empty and the constraint is not rendered; say what to write")
    return Task(prompt, constraint, family, render)


def write_prompts(
    tasks: Mapping[str, Sequence[Task]], folder: Path, canvas_of: Callable[[Constraint], int]
) -> dict[str, list[TaskPrompt]]:
    """The prompts of each family, on the canvas that the longest of its constraints needs; written to `folder`.

    Raises `TasksError` where `folder` holds others: a census of those cannot go on with these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[TaskPrompt]] = {}
    for family, of_family in tasks.items():
        length = max(canvas_of(task.constraint) for task in of_family)
        prompts = [
            TaskPrompt(task.id, family, task.prompt, task.constraint.to_spec(), length, length, task.render_constraint)
            for task in of_family
        ]
        _write(folder / f"{family}.jsonl", prompts)
        written[family] = prompts
    return written


def _write(path: Path, prompts: Sequence[TaskPrompt]) -> None:
    content = "".join(json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts)
    if path.is_file() and (before := _lines(path.read_text(encoding="utf-8"))) - (after := _lines(content)):
        lost = len(before - after)
        raise TasksError(
            f"{path} holds {lost} tasks that the file lacks now or changes; add tasks only, or give another --work"
        )
    path.write_text(content, encoding="utf-8")


def _lines(content: str) -> set[str]:
    return set(content.splitlines())


def split_counts(prompts: Sequence[TaskPrompt], seed: int) -> dict[str, int]:
    """Prompts of one family by set."""
    counts: dict[str, Any] = {name: 0 for name, _ in SPLITS}
    for prompt in prompts:
        counts[split_of(seed, prompt.task, prompt.id)] += 1
    return counts
