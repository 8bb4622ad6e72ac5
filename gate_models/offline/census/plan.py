"""The work of a census: its prompts in a balanced order, and what is still to do for each."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gate_models.committor.committor import BASE, GUIDED, Arm
from gate_models.committor.horizon import GridPoint, grid_points
from gate_models.offline.benchmarks.splits import split_of
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.runs.trace_codec import step_count


@dataclass(frozen=True, slots=True)
class Unit:
    """One prompt, with the canvas and steps that it is decoded in."""

    prompt: TaskPrompt
    split: str
    gen_length: int
    steps: int

    @property
    def key(self) -> tuple[str, str]:
        """(task, prompt id)."""
        return self.prompt.task, self.prompt.id


def units_of(settings: CensusSettings) -> list[Unit]:
    """The prompts: subtasks take turns, and within each the three prompt sets do, so that a cut-off run is balanced.

    Raises `ValueError` for an unknown subtask or too large a count.
    """
    by_task = []
    for task in expand(settings.subtasks):
        prompts = load_task(task)
        if settings.prompts is not None and not 1 <= settings.prompts <= len(prompts):
            raise ValueError(f"subtask {task!r} has {len(prompts)} prompts; --prompts must be from 1 to {len(prompts)}")
        units = [_unit(prompt, settings) for prompt in prompts[: settings.prompts]]
        by_task.append(list(_proportionally(units)))
    return [unit for turn in zip_longest(*by_task) for unit in turn if unit is not None]


def _unit(prompt: TaskPrompt, settings: CensusSettings) -> Unit:
    split = split_of(settings.seed, prompt.task, prompt.id)
    return Unit(prompt, split, settings.gen_length or prompt.gen_length, settings.steps or prompt.steps)


def _proportionally(units: Sequence[Unit]) -> Iterator[Unit]:
    """Every prefix holds the sets in about their shares of `units`: each comes at the middles of its equal parts."""
    by_split: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        by_split[unit.split].append(unit)
    placed = [
        ((index + 0.5) / len(members), name, unit)
        for name, members in by_split.items()
        for index, unit in enumerate(members)
    ]
    return (unit for _, _, unit in sorted(placed, key=lambda item: (item[0], item[1])))


@dataclass(frozen=True, slots=True)
class CellWork:
    """Rollouts `first` .. `first + count - 1` of a cell."""

    kind: str
    point: GridPoint
    arm: Arm
    weight: float
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What is still to do for one prompt. `recorded` is the trace of its frozen run, where that is there already."""

    unit: Unit
    runs: tuple[tuple[float, int], ...]
    """(weight, repeat) of the runs to record."""
    cells: tuple[CellWork, ...]
    recorded: bytes | None = None

    @property
    def rows(self) -> int:
        """About how many forward evaluations it takes."""
        total, steps = 0, self.unit.steps
        for weight, _ in self.runs:
            total += steps * (2 if weight > 0 else 1)
        for cell in self.cells:
            left = steps - cell.point.step
            each = 2 * left if cell.arm.guided else -(-left // cell.arm.tail_width)
            if cell.kind == "switch":
                each += 2 * cell.point.step
            total += cell.count * each
        return total


@dataclass(slots=True)
class Done:
    """What a folder holds of one prompt."""

    runs: set[str] = field(default_factory=set)
    rollouts: dict[tuple[str, int, str, float], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Batches (first, count) of rollouts by (kind, step, arm, weight)."""
    recorded: bytes | None = None
    """Trace of the frozen run."""


def run_name(weight: float, repeat: int) -> str:
    """Name of a recorded run: "w2#0"."""
    return f"w{weight:g}#{repeat}"


def arms_of(settings: CensusSettings) -> tuple[Arm, ...]:
    """Base arms by width, then the guided one."""
    widths = sorted({1, *settings.tail_widths})
    return (BASE, *(Arm(False, width) for width in widths if width > 1), GUIDED)


def cells_of(settings: CensusSettings, steps: int) -> Iterator[tuple[str, GridPoint, Arm, float]]:
    """Every cell of a prompt: (kind, point, arm, weight)."""
    points = grid_points(steps, (*settings.grid, *settings.extra_grid))
    for point in points:
        for arm in arms_of(settings):
            yield "freeze", point, arm, settings.weight
    start = GridPoint(0, (0.0,))
    for weight in sorted(set(settings.sweep)):
        yield "fresh", start, GUIDED if weight > 0 else BASE, weight
    if settings.switch:
        for point in points:
            yield "switch", point, BASE, settings.weight
        yield "switch", GridPoint(steps, (1.0,)), GUIDED, settings.weight


def missing(batches: Iterable[tuple[int, int]], wanted: int) -> list[tuple[int, int]]:
    """What batches (first, count) lack of the rollouts 0 .. `wanted` - 1, between them too (a shard may be lost)."""
    gaps, at = [], 0
    for first, count in sorted(batches):
        if at < min(first, wanted):
            gaps.append((at, min(first, wanted) - at))
        at = max(at, first + count)
    return gaps + ([(at, wanted - at)] if at < wanted else [])


def work_for(unit: Unit, settings: CensusSettings, done: Done) -> WorkItem | None:
    """What `done` lacks of a prompt; None where nothing."""
    wanted = [(settings.weight, repeat) for repeat in range(settings.repeats)]
    wanted += [(weight, 0) for weight in sorted(set(settings.extra_weights))]
    runs = tuple(run for run in wanted if run_name(*run) not in done.runs)
    length = unit.steps if done.recorded is None else step_count(done.recorded)
    cells = []
    for kind, point, arm, weight in cells_of(settings, unit.steps):
        batches = done.rollouts.get((kind, point.step, arm.name, weight), [])
        if kind != "freeze" or point.step < length:
            lacking = missing(batches, settings.rollouts)
            cells += [CellWork(kind, point, arm, weight, first, count) for first, count in lacking]
    return WorkItem(unit, runs, tuple(cells), done.recorded) if runs or cells else None


def plan(settings: CensusSettings, done: Mapping[tuple[str, str], Done]) -> list[WorkItem]:
    """The work that is left, in order. Raises `ValueError` as `units_of` does."""
    items = (work_for(unit, settings, done.get(unit.key, Done())) for unit in units_of(settings))
    return [item for item in items if item is not None]


def shards_of(items: Sequence[WorkItem], size: int) -> Iterable[tuple[WorkItem, ...]]:
    """Items in groups of `size`, in order."""
    return (tuple(items[start : start + size]) for start in range(0, len(items), size))


def shard_name(items: Sequence[WorkItem]) -> str:
    """Name of a shard: a digest of the work in it, so that the same work has the same name."""
    work: list[Any] = [
        (item.unit.key, item.runs, [(c.kind, c.point.step, c.arm.name, c.weight, c.first, c.count) for c in item.cells])
        for item in items
    ]
    return hashlib.sha256(repr(work).encode()).hexdigest()[:20]
