"""The runs that a repair census looks at, in a balanced order, and what a plain census already knows of them.

A census (`astargate census`) has frozen the first guided run of each prompt: its q0 and qg are taken from there instead
of being measured again, and the run itself is decoded once more, which must give the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decoding.constraints import parse
from decoding.models.protocol import DenoisingModel
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job
from decoding.sampling.noise import NoiseKey
from gate_models.offline.benchmarks.tasks import TaskPrompt, expand, load_task
from gate_models.offline.census.labels import counts_of
from gate_models.offline.census.plan import Unit as CensusUnit
from gate_models.offline.census.records import Census, CensusError
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.worker import run_job
from gate_models.offline.repair_census.arms import recorded_job
from gate_models.offline.repair_census.settings import RepairCensusSettings

MEASURED: Final = "measured"
"""Source of a sweep that this census ran itself."""


@dataclass(frozen=True, slots=True, eq=False)
class FrozenRun:
    """What a census knows of a prompt's recorded run: its tokens [L], its verdict, and q0, qg [F] at steps `grid`."""

    job: Job
    tokens: tuple[int, ...]
    satisfied: bool
    grid: tuple[int, ...]
    base: NDArray[np.float64]
    guided: NDArray[np.float64]
    source: str


@dataclass(frozen=True, slots=True)
class RepairUnit:
    """One recorded run."""

    prompt: TaskPrompt
    seed: int
    frozen: FrozenRun | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.prompt.task, self.prompt.id, self.seed


def units_of(settings: RepairCensusSettings, known: dict[tuple[str, str], FrozenRun]) -> list[RepairUnit]:
    """The runs: subtasks take turns, so that a census that is cut off is balanced.

    A prompt that is `known` by (task, id) has the one run that was frozen, any other `settings.seeds`.
    """
    by_task = [list(_runs_of(task, settings, known)) for task in expand(settings.subtasks)]
    return [unit for turn in zip_longest(*by_task) for unit in turn if unit is not None]


def _runs_of(
    task: str, settings: RepairCensusSettings, known: dict[tuple[str, str], FrozenRun]
) -> Iterator[RepairUnit]:
    for prompt in load_task(task, settings.prompts):
        frozen = known.get((task, prompt.id))
        for seed in range(1 if frozen else settings.seeds):
            yield RepairUnit(prompt, seed, frozen)


def fresh_job(model: DenoisingModel, unit: RepairUnit, settings: RepairCensusSettings) -> Job:
    """The run to record for a prompt that no census knows: full CFG on its own canvas."""
    prompt = unit.prompt
    return recorded_job(
        Job(
            prompt_ids=tuple(model.codec.encode_prompt(prompt.text())),
            gen_length=prompt.gen_length,
            steps=prompt.steps,
            policy=resolve_policy("full_cfg", {"guidance_scale": settings.weight}),
            noise=NoiseKey(settings.seed, purpose="generate", arm=f"{prompt.task}/{prompt.id}", rollout=unit.seed),
            predicate=parse(prompt.constraint),
        )
    )


def frozen_runs(
    census: Census, model: DenoisingModel, settings: RepairCensusSettings
) -> dict[tuple[str, str], FrozenRun]:
    """The frozen runs of a census by (task, prompt id); prompts whose sweep is not complete are left out.

    Raises `CensusError` where it is of another model, weight or mode than `settings` ask for.
    """
    made_with = _settings_of(census)
    wanted = {"model_hash": model.spec.hash, "weight": settings.weight, "invariant": settings.invariant}
    held = {
        "model_hash": census.manifest["model_hash"],
        "weight": made_with.weight,
        "invariant": made_with.invariant,
    }
    if differing := [f"{name} {held[name]}, not {wanted[name]}" for name in wanted if held[name] != wanted[name]]:
        raise CensusError(f"the census does not fit: it has {'; '.join(differing)}")
    prompts = {(task, prompt.id): prompt for task in census.tasks for prompt in load_task(task)}
    runs = {}
    for record in census.prompts:
        counts, run, prompt = counts_of(census, record), record.runs.get(census.main_run), prompts.get(record.key)
        if counts is None or run is None or prompt is None:
            continue
        item = CensusUnit(prompt, run.split, run.gen_length, run.steps)
        job = run_job(model, made_with, item, made_with.weight, 0)
        runs[record.key] = FrozenRun(
            job=recorded_job(replace(job, predicate=parse(prompt.constraint), record="commits")),
            tokens=run.tokens,
            satisfied=run.success,
            grid=counts.steps,
            base=counts.base / counts.base_count,
            guided=counts.guided / counts.guided_count,
            source=f"census seed {made_with.seed}, N = {int(counts.base_count.min())}",
        )
    return runs


def _settings_of(census: Census) -> CensusSettings:
    def as_made(value: Any) -> Any:
        return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    return CensusSettings(**{name: as_made(value) for name, value in census.settings.items()})
