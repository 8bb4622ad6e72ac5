"""The repair census: failed runs are reopened at an anchor by every selector, against a control that reopens nothing.

One unit is a prompt and a seed. Its recorded full-CFG run is judged; where it fails, the freeze sweep tells a*, the
peak of q0 and the population (rules in `repair_arms`), and every arm continues each anchored state under guidance.
Results are lines of JSON, one a unit, appended as they are found: a killed run goes on where it stopped.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from decoding.compute import compute_mode
from decoding.constraints import parse
from decoding.engine import Engine
from decoding.handle import Outcome
from decoding.job import Job
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.noise import NoiseKey
from decoding.policy import resolve_policy
from decoding.repair_policy import ROLLOUT_SELECTORS, SELECTORS, Selector
from decoding.runner import Runner
from decoding.scheduler import Scheduler
from gate_models.offline.committor import BASE, GUIDED, cell_jobs, collect, judge_of
from gate_models.offline.evaluate import software
from gate_models.offline.fluency import Judge, load_judge
from gate_models.offline.horizon import freeze_states, grid_points
from gate_models.offline.lesion import lesion_unit
from gate_models.offline.repair_arms import (
    CONTROL,
    OWN_SELECTORS,
    PAPER_SELECTORS,
    Anchored,
    Reopening,
    anchors_of,
    population_of,
    recorded_job,
)
from gate_models.offline.tasks import TaskPrompt, expand, load_task

CONTROLS_AUDITED: Final = 2
"""Continuations of each control that are run again by the plain schedule."""


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """What a repair census is made from; the first line of its file."""

    subtasks: tuple[str, ...]
    prompts: int | None = None
    """Prompts a subtask; None: all it has."""
    seeds: int = 2
    continuations: int = 10
    """Of every arm, of every cell of the freeze sweep, and of each candidate in the committor selectors."""
    counts: tuple[int, ...] = (1, 3)
    """K."""
    selectors: tuple[Selector, ...] = (*PAPER_SELECTORS, *OWN_SELECTORS)
    seed: int = 0
    weight: float = 2.0
    model: str = "mini"
    device: str = "cpu"
    threads: int = 1
    max_rows: int = 64
    invariant: bool = True

    def __post_init__(self) -> None:
        for name in self.selectors:
            if name not in SELECTORS:
                raise ValueError(f"selector {name!r} is unknown; selectors: {', '.join(SELECTORS)}")
        if min(self.seeds, self.continuations, *self.counts) < 1:
            raise ValueError("seeds, continuations and counts must be at least 1")


@dataclass(frozen=True, slots=True)
class Unit:
    """One recorded run."""

    prompt: TaskPrompt
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.prompt.task, self.prompt.id, self.seed


class RepairCensus:
    """Holds the model and its engine; `measure` does one unit."""

    def __init__(self, settings: RepairSettings, model: DenoisingModel, judge: Judge) -> None:
        self.settings, self.model, self.judge = settings, model, judge
        runner = Runner(model, invariant=settings.invariant)
        self.engine = Engine(model, runner=runner, scheduler=Scheduler(settings.max_rows, 2**62))

    def decode(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs side by side on this thread."""
        handles = self.engine.submit_all(jobs)
        while self.engine.step():
            pass
        return [handle.result() for handle in handles]

    def job(self, unit: Unit) -> Job:
        """The recorded run of a unit."""
        prompt = unit.prompt
        name = f"{prompt.task}/{prompt.id}"
        return recorded_job(
            Job(
                prompt_ids=tuple(self.model.codec.encode_prompt(prompt.text())),
                gen_length=prompt.gen_length,
                steps=prompt.steps,
                policy=resolve_policy("full_cfg", {"guidance_scale": self.settings.weight}),
                noise=NoiseKey(self.settings.seed, purpose="generate", arm=name, rollout=unit.seed),
                predicate=parse(prompt.constraint),
            )
        )

    def measure(self, unit: Unit) -> dict[str, Any]:
        """Everything of one unit, as it is written."""
        before = self.engine.runner.counts.total
        (outcome,) = self.decode([self.job(unit)])
        found: dict[str, Any] = {"task": unit.prompt.task, "prompt": unit.prompt.id, "seed": unit.seed}
        if outcome.kept is not None and outcome.kept.satisfied:
            lesion = lesion_unit(self.model, outcome, unit.prompt.constraint, self.decode)
            found |= {"population": "succeeds", "lesion": lesion}
        else:
            found |= self._failed(unit, outcome)
        return found | {"rows": self.engine.runner.counts.total - before}

    def _failed(self, unit: Unit, outcome: Outcome) -> dict[str, Any]:
        label, points = "/".join(map(str, unit.key)), grid_points(outcome.job.steps)
        states = freeze_states(outcome, label, self.model.spec.mask_id, points)
        judge, count = judge_of(self.model, unit.prompt.constraint), self.settings.continuations
        jobs = [job for frozen in states for arm in (BASE, GUIDED) for job in cell_jobs(frozen.state, arm, count)]
        outcomes = iter(self.decode(jobs))
        q0, qg = np.array(
            [
                [collect(arm, [next(outcomes) for _ in range(count)], judge).outcomes.mean() for arm in (BASE, GUIDED)]
                for _ in states
            ]
        ).T
        grid = [frozen.point.step for frozen in states]
        anchors = anchors_of(q0, qg, grid, outcome.job.steps)
        population = population_of(q0)
        found = {"population": population or "other", "grid": grid, "q0": q0.tolist(), "qg": qg.tolist()}
        if population is None:
            return found
        predicate = parse(unit.prompt.constraint)
        anchored = [Anchored(self.model, outcome, predicate, name, step) for name, step in anchors.items()]
        return found | {"anchors": anchors, "arms": [arm for state in anchored for arm in self._arms(state, predicate)]}

    def _arms(self, state: Anchored, predicate: Any) -> Iterator[dict[str, Any]]:
        settings = self.settings
        arms = [state.reopening(CONTROL, 0, {})]
        for selector in settings.selectors:
            if selector == "restart":
                arms.append(state.reopening(selector, 0, None))
                continue
            if selector in ROLLOUT_SELECTORS:
                rollouts = self.decode(state.rollouts(selector, settings.continuations))
                keys = state.rollout_keys(rollouts, settings.continuations)
            else:
                keys = state.keys(selector)
            arms += [state.reopening(selector, count, keys) for count in settings.counts]
        jobs = [state.continuations(arm, settings.continuations) for arm in arms]
        outcomes = iter(self.decode([job for group in jobs for job in group]))
        for arm, group in zip(arms, jobs, strict=True):
            decoded = [next(outcomes) for _ in group]
            yield asdict(arm) | self._figures(decoded, predicate) | self._audit(state, arm, decoded)

    def _figures(self, decoded: Sequence[Outcome], predicate: Any) -> dict[str, Any]:
        texts = [self.model.codec.decode(list(outcome.content)) for outcome in decoded]
        verdicts = [predicate.evaluate(text) for text in texts]
        fluency = self.judge.score(texts)
        return {
            "success": [verdict.satisfied for verdict in verdicts],
            "score": [verdict.score for verdict in verdicts],
            "length": [len(outcome.content) for outcome in decoded],
            "masks_left": sum(outcome.tokens.count(self.model.spec.mask_id) for outcome in decoded),
            "rows": sum(outcome.ledger.total for outcome in decoded),
            "nll": sum(score.nll for score in fluency),
            "nll_tokens": sum(score.tokens for score in fluency),
        }

    def _audit(self, state: Anchored, arm: Reopening, decoded: Sequence[Outcome]) -> dict[str, Any]:
        """The control once more by the plain schedule of the recorded run: bit-equal, or the quota is at fault."""
        if arm.arm != CONTROL:
            return {}
        count = min(CONTROLS_AUDITED, len(decoded))
        plain = self.decode([state.plain_control(index) for index in range(count)])
        equal = [a.tokens == b.tokens for a, b in zip(plain, decoded[:count], strict=True)]
        return {"control_equal": sum(equal), "control_compared": count}


def run(settings: RepairSettings, out: Path) -> int:
    """Measure what the file `out` lacks; returns the units measured.

    Raises `ValueError` where the file holds another census, `BlockingIOError` where another process is at it.
    """
    units = [
        Unit(prompt, seed)
        for task in expand(settings.subtasks)
        for prompt in load_task(task, settings.prompts)
        for seed in range(settings.seeds)
    ]
    model = load_model(settings.model, device=settings.device)
    header = {"settings": _plain(settings), "model_hash": model.spec.hash, "versions": software()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a+", encoding="utf-8") as file, compute_mode(settings.threads):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = _resume(file, header, out)
        left = [unit for unit in units if unit.key not in done]
        census = RepairCensus(settings, model, load_judge())
        for unit in tqdm(left, desc="repair census", unit="run", mininterval=1.0):
            file.write(json.dumps(census.measure(unit)) + "\n")
            file.flush()
    return len(left)


def _plain(settings: RepairSettings) -> dict[str, Any]:
    """What every unit of a file shares, as JSON has it."""
    may_grow = {"subtasks", "prompts", "seeds", "threads", "device"}
    kept = {name: value for name, value in asdict(settings).items() if name not in may_grow}
    return dict(json.loads(json.dumps(kept)))


def _resume(file: Any, header: Mapping[str, Any], out: Path) -> set[tuple[str, str, int]]:
    """Keys of the units in `file`, cut behind its last whole line; a new file gets its header."""
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        file.truncate(0)
        file.write(json.dumps(header) + "\n")
        return set()
    file.truncate(sum(len(line.encode()) for line in whole))
    if json.loads(whole[0]) != header:
        raise ValueError(f"{out} holds a repair census of another model, version or settings; choose another --out")
    return {(unit["task"], unit["prompt"], unit["seed"]) for unit in map(json.loads, whole[1:])}


def read_units(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and units of a census file. Raises `ValueError` where it is none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        header, *units = map(json.loads, lines)
        if "settings" not in header:
            raise ValueError("it has no header")
    except ValueError as error:
        raise ValueError(f"{path}: not a repair census: {error}") from None
    return header, units
