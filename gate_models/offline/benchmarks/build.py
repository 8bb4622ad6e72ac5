"""Write every task's prompt file: `astargate build-prompts --data DIR`.

The same data and seed give the same files, byte for byte.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from gate_models.offline.benchmarks import ccg, cognac, collie, commongen, held_out, ifeval
from gate_models.offline.benchmarks.sources import SEED, distinct
from gate_models.offline.benchmarks.tasks import TaskPrompt

Builder = Callable[[Path, random.Random], Iterator[TaskPrompt]]
BUILDERS: Final[dict[str, Builder]] = {
    **commongen.TASKS,
    **ccg.TASKS,
    **ifeval.TASKS,
    **collie.TASKS,
    **cognac.TASKS,
    **held_out.TASKS,
}


def lines_of(name: str, data: Path) -> list[str]:
    """The JSONL lines of one task; `render_constraint` is written only where it is false."""
    prompts: Iterator[TaskPrompt] = BUILDERS[name](data, random.Random(f"{SEED}-{name}"))
    if name in ccg.TASKS or name in ifeval.TASKS:
        prompts = distinct(prompts)
    lines = []
    for prompt in prompts:
        record = asdict(prompt)
        if prompt.render_constraint:
            del record["render_constraint"]
        lines.append(json.dumps(record) + "\n")
    return lines


def build(data: Path, out: Path) -> None:
    """Write every task's file."""
    out.mkdir(parents=True, exist_ok=True)
    for name in BUILDERS:
        (out / f"{name}.jsonl").write_text("".join(lines_of(name, data)), encoding="utf-8")
