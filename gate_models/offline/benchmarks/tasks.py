"""Evaluation prompts: built once from the benchmark data, shipped as JSONL, loaded anywhere.

How each task was made, and where it departs from the paper, stands in `prompts/README.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from decoding.constraints import FAMILIES, parse

ALL: Final = "all"
"""Stands for the paper's thirteen subtasks and avoidance."""
OWN_TASKS: Final = "ASTARGATE_TASKS"
"""Environment variable of a folder with tasks of one's own, one `TASK.jsonl` each; worker processes inherit it."""
SUBTASKS: Final[tuple[str, ...]] = FAMILIES


@dataclass(frozen=True, slots=True)
class TaskPrompt:
    """One prompt with its constraint, the canvas that its texts fill, and whether the constraint is added in words."""

    id: str
    task: str
    prompt: str
    constraint: dict[str, Any]
    gen_length: int
    steps: int
    render_constraint: bool = True
    """False where `prompt` says already what is asked for, in words of its own."""

    def text(self) -> str:
        """What the model is given: the prompt, and the constraint's instruction where it is to be rendered."""
        if not self.render_constraint:
            return self.prompt
        return f"{self.prompt} {parse(self.constraint).instruction()}".strip()


def own_tasks() -> Path | None:
    """The folder of tasks of one's own, which the environment variable `ASTARGATE_TASKS` names; None without it."""
    folder = os.environ.get(OWN_TASKS, "")
    return Path(folder) if folder else None


def family_of(prompt: TaskPrompt) -> str | None:
    """The family whose gates serve a prompt: the task itself where it is one of one's own, else the constraint's."""
    folder = own_tasks()
    if folder is not None and (folder / f"{prompt.task}.jsonl").is_file():
        return prompt.task
    return parse(prompt.constraint).family


def prompts_folder() -> Path:
    """Folder of the shipped prompt files."""
    return Path(str(files("gate_models.offline"))) / "prompts"


def task_names() -> list[str]:
    """Tasks that have a prompt file, shipped or of one's own."""
    folders = [folder for folder in (own_tasks(), prompts_folder()) if folder is not None]
    return sorted({path.stem for folder in folders for path in folder.glob("*.jsonl")})


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Task names with `all` replaced by the subtasks, each once. Raises `ValueError` for an unknown one."""
    listed = [task for name in names for task in (SUBTASKS if name == ALL else (name,))]
    for name in listed:
        _path(name)
    return tuple(dict.fromkeys(listed))


def load_task(name: str, count: int | None = None) -> list[TaskPrompt]:
    """The first `count` prompts of a task (all: None). Raises `ValueError` for an unknown task or too large a count."""
    lines = _path(name).read_text(encoding="utf-8").splitlines()
    prompts = [TaskPrompt(**json.loads(line)) for line in lines]
    if count is not None and not 1 <= count <= len(prompts):
        raise ValueError(f"task {name!r} has {len(prompts)} prompts; --n must be from 1 to {len(prompts)}")
    return prompts[:count]


def _path(name: str) -> Path:
    if name not in task_names():
        raise ValueError(f"task {name!r} is unknown; tasks: {ALL}, {', '.join(task_names())}")
    folder = own_tasks()
    own = None if folder is None else folder / f"{name}.jsonl"
    return own if own is not None and own.is_file() else prompts_folder() / f"{name}.jsonl"
