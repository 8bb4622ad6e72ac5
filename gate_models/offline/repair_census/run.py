"""The repair census: which way of reopening a failed run meets the constraint, against a control that reopens nothing.

One unit is a prompt and a seed. Its recorded full-CFG run is judged. Where the run fails, the freeze sweep gives a*,
the peak of q0 and the population (rules in `arms`), and every arm continues each anchored state under guidance. Results
are lines of JSON, one a unit, appended as they are measured: a killed run goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.policy.repair import LOOKING, ROLLOUT_SELECTORS
from decoding.request.job import Job
from gate_models.committor.committor import BASE, GUIDED, cell_jobs, collect, judge_of
from gate_models.committor.horizon import freeze_states, grid_points
from gate_models.offline.census.store import load_census
from gate_models.offline.repair_census.arms import CONTROL, Anchored, Reopening, anchors_of, population_of
from gate_models.offline.repair_census.lesion import lesion_unit
from gate_models.offline.repair_census.settings import RepairCensusSettings
from gate_models.offline.repair_census.store import header_of, opened
from gate_models.offline.repair_census.units import MEASURED, RepairUnit, fresh_job, frozen_runs, units_of
from gate_models.offline.runs.versions import software
from gate_models.offline.scorers.fluency import FluencyModel, load_judge

CONTROLS_AUDITED: Final = 2
"""Continuations of each control that are run again by the plain schedule."""
SUCCEEDS: Final = "succeeds"
OTHER: Final = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """q0 and qg [F] of a recorded run at the steps `grid`, and where they come from."""

    grid: tuple[int, ...]
    base: NDArray[np.float64]
    guided: NDArray[np.float64]
    source: str

    @property
    def population(self) -> str:
        """Hopeless, collapse or other."""
        return population_of(self.base) or OTHER


class RepairCensus:
    """Holds the model and its engine; `measure` does one unit."""

    def __init__(self, settings: RepairCensusSettings, model: DenoisingModel, judge: FluencyModel) -> None:
        self.settings, self.model, self.judge = settings, model, judge
        runner = Runner(model, invariant=settings.invariant)
        self.engine = Engine(model, runner=runner, scheduler=Scheduler(settings.max_rows, 2**62))

    def decode(self, jobs: Sequence[Job]) -> list[DecodingResult]:
        """Run jobs side by side on this thread."""
        handles = self.engine.submit_all(jobs)
        while self.engine.step():
            pass
        return [handle.result() for handle in handles]

    def measure(self, unit: RepairUnit, done: Counter[tuple[str, str]] | None = None) -> dict[str, Any]:
        """Everything of one unit, as it is written. `done`: units that were intervened on, by (task, population)."""
        before = self.engine.runner.counts.total
        done = Counter() if done is None else done
        key: dict[str, Any] = {"task": unit.prompt.task, "prompt": unit.prompt.id, "seed": unit.seed}
        return key | self._measure(unit, done) | {"rows": self.engine.runner.counts.total - before}

    def _measure(self, unit: RepairUnit, done: Counter[tuple[str, str]]) -> dict[str, Any]:
        def enough(population: str) -> bool:
            limit = self.settings.most
            return population == OTHER or (limit is not None and done[unit.prompt.task, population] >= limit)

        frozen = unit.frozen
        if frozen is not None:
            sweep = Sweep(frozen.grid, frozen.base, frozen.guided, frozen.source)
            population = SUCCEEDS if frozen.satisfied else sweep.population
            if enough(population):
                return {"population": population, "skipped": True}
        outcome = self._recorded(unit)
        if outcome.kept is not None and outcome.kept.satisfied:
            if enough(SUCCEEDS):
                return {"population": SUCCEEDS, "skipped": True}
            return {
                "population": SUCCEEDS,
                "lesion": lesion_unit(self.model, outcome, unit.prompt.constraint, self.decode),
            }
        if frozen is None:
            sweep = self._sweep(unit, outcome)
        content = {
            "population": sweep.population,
            "source": sweep.source,
            "grid": list(sweep.grid),
            "q0": sweep.base.tolist(),
            "qg": sweep.guided.tolist(),
        }
        if sweep.population == OTHER:
            return content
        if enough(sweep.population):
            return content | {"skipped": True}
        anchors = anchors_of(sweep.base, sweep.guided, sweep.grid, outcome.job.steps)
        predicate = parse(unit.prompt.constraint)
        states = [Anchored(self.model, outcome, predicate, name, step) for name, step in anchors.items()]
        return content | {"anchors": anchors, "arms": [arm for state in states for arm in self._arms(state, predicate)]}

    def _recorded(self, unit: RepairUnit) -> DecodingResult:
        """The recorded run. Raises `ValueError` where a census's is not reproduced."""
        job = fresh_job(self.model, unit, self.settings) if unit.frozen is None else unit.frozen.job
        (outcome,) = self.decode([job])
        if unit.frozen is not None and outcome.tokens != unit.frozen.tokens:
            raise ValueError(
                f"the census's run of {unit.prompt.id} is not reproduced here: another kind of machine or another "
                "version made it; measure without --census"
            )
        return outcome

    def _sweep(self, unit: RepairUnit, outcome: DecodingResult) -> Sweep:
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
        return Sweep(tuple(frozen.point.step for frozen in states), q0, qg, MEASURED)

    def _arms(self, state: Anchored, predicate: Any) -> Iterator[dict[str, Any]]:
        settings = self.settings
        arms = [state.reopening(CONTROL, 0, {})]
        for selector in settings.selectors:
            if selector == "restart":
                arms.append(state.reopening(selector, 0, None))
                continue
            if selector in ROLLOUT_SELECTORS:
                rollouts = self.decode(state.rollouts(selector, settings.continuations))
                keys = state.rollout_keys(rollouts)
            elif selector == LOOKING and (probed := self.decode(state.probe_jobs())):
                keys = state.probe_keys(probed[0])
            else:
                keys = state.keys(selector)
            arms += [state.reopening(selector, count, keys) for count in settings.counts]
        jobs = [state.continuations(arm, settings.continuations) for arm in arms]
        outcomes = iter(self.decode([job for group in jobs for job in group]))
        for arm, group in zip(arms, jobs, strict=True):
            decoded = [next(outcomes) for _ in group]
            yield asdict(arm) | self._figures(decoded, predicate) | self._audit(state, arm, decoded)

    def _figures(self, decoded: Sequence[DecodingResult], predicate: Any) -> dict[str, Any]:
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

    def _audit(self, state: Anchored, arm: Reopening, decoded: Sequence[DecodingResult]) -> dict[str, Any]:
        """The control once more by the plain schedule of the recorded run: bit-equal, or the quota is at fault."""
        if arm.arm != CONTROL:
            return {}
        count = min(CONTROLS_AUDITED, len(decoded))
        plain = self.decode([state.plain_control(index) for index in range(count)])
        equal = [a.tokens == b.tokens for a, b in zip(plain, decoded[:count], strict=True)]
        return {"control_equal": sum(equal), "control_compared": count}


def run(settings: RepairCensusSettings, out: Path, census: Path | None = None) -> int:
    """Measure what the file `out` lacks; returns the units looked at.

    `census`: folder of a census whose frozen runs are reopened. Raises `ValueError` where the file holds another repair
    census or the census does not fit, `BlockingIOError` where another process is at it.
    """
    units_of(settings, {})  # unknown subtasks are refused before a model is loaded
    model = load_model(settings.model, device=settings.device)
    known = {} if census is None else frozen_runs(load_census(census, heavy=False), model, settings)
    header = header_of(asdict(settings), model.spec.hash, software())
    with opened(out, header) as (earlier, add), compute_mode(settings.threads):
        keys = {(unit["task"], unit["prompt"], unit["seed"]) for unit in earlier}
        done = Counter((unit["task"], unit["population"]) for unit in earlier if "skipped" not in unit)
        left = [unit for unit in units_of(settings, known) if unit.key not in keys]
        worker = RepairCensus(settings, model, load_judge())
        for unit in tqdm(left, desc="repair census", unit="run", mininterval=1.0):
            measured = worker.measure(unit, done)
            if "skipped" not in measured:
                done[measured["task"], measured["population"]] += 1
            add(measured)
    return len(left)
