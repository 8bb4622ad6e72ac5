"""Makes gates for tasks of one's own: census, training, audit on prompts that trained nothing, report.

Each stage goes on where it was stopped: the census keeps its shards, the audit its decoded runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from decoding.constraints import Constraint
from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.policy.model_defaults import policy_defaults
from decoding.policy.presets import resolve_policy
from gate_models.offline.adapt.report import write_report
from gate_models.offline.adapt.settings import AdaptSettings
from gate_models.offline.adapt.tasks import Task, TasksError, split_counts, write_prompts
from gate_models.offline.benchmarks.tasks import OWN_TASKS, TaskPrompt
from gate_models.offline.census import run as census
from gate_models.offline.census.plan import Unit, plan, units_of
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.worker import run_job
from gate_models.offline.gate_audit.export import export
from gate_models.offline.gate_audit.run import audit
from gate_models.offline.gate_audit.settings import AuditSettings
from gate_models.offline.gate_audit.sweep import SweepSettings
from gate_models.offline.gate_training.settings import GateTrainSettings
from gate_models.offline.gate_training.train import train

CHECKPOINTS: Final = (0.75, 0.9)
"""Fractions behind the paper's grid at which gates look too."""
EXTRA_WEIGHTS: Final = (0.0, 1.0, 4.0)
"""Guidance scales of further recorded runs, from which features learn what weak and strong guidance look like."""
TIMED: Final = 16
"""Texts that are decoded to see how fast this machine is."""
AUDIT_SEED: Final = 1000
"""Added to the seed for the audit's texts."""


class StoppedError(RuntimeError):
    """The census was stopped; the same command goes on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `adapt` will measure, and what it takes."""

    prompts: Mapping[str, Sequence[TaskPrompt]]
    """By family."""
    census: CensusSettings
    settings: AdaptSettings
    work: Path
    """Folder of the census, the prompts and the audit."""
    model: str
    census_rows: int
    audit_rows: int
    rows_per_second: float
    """Of one process on this machine, measured."""

    @property
    def rows(self) -> int:
        """About how many forward evaluations are left."""
        return self.census_rows + self.audit_rows

    def described(self, processes: int) -> str:
        """What is measured and how long it takes, in lines for a terminal."""
        families = [
            f"{family}: {len(prompts)} different tasks, canvas of {prompts[0].gen_length} tokens"
            for family, prompts in self.prompts.items()
        ]
        with_processes = f"{processes} process{'es' if processes > 1 else ''}"
        cost = (
            f"about {self.rows} forward evaluations, {self.rows_per_second:.0f} a second and process: "
            f"{self.minutes(processes):.0f} minutes with {with_processes}, and a minute or two of training a family"
        )
        return "\n".join([*families, cost])

    def minutes(self, processes: int) -> float:
        """About how long the decoding takes; the audit runs in one process."""
        return (self.census_rows / processes + self.audit_rows) / self.rows_per_second / 60


def make_plan(
    tasks: Mapping[str, Sequence[Task]],
    work: Path,
    settings: AdaptSettings,
    model: DenoisingModel,
    name: str,
    canvas_of: Callable[[Constraint], int],
) -> Plan:
    """Write the prompts, decode a few texts to time the machine, and say what is left to do.

    `name` loads `model` in other processes. `canvas_of` is the canvas that a request of a constraint gets. Raises
    `TasksError`.
    """
    given = settings.gen_length
    prompts = write_prompts(tasks, work / "tasks", canvas_of if given is None else lambda constraint: given)
    for family, of_family in prompts.items():
        if of_family[0].gen_length > model.spec.max_canvas:
            raise TasksError(
                f"family '{family}' needs {of_family[0].gen_length} tokens; model {model.spec.name} writes at most "
                f"{model.spec.max_canvas}"
            )
    with own_tasks(work):
        asked = census_settings(tuple(prompts), settings, model, name)
        left = plan(asked, census.read_done(work / "census", asked))
        speed = _speed(model, asked, units_of(asked)[:TIMED])
    audit_rows = sum(
        split_counts(of_family, settings.seed)["audit"] * settings.samples * _audit_rows(of_family[0].steps, settings)
        for of_family in prompts.values()
    )
    return Plan(prompts, asked, settings, work, name, sum(item.rows for item in left), audit_rows, speed)


@contextmanager
def own_tasks(work: Path) -> Iterator[None]:
    """Let this process and its workers find the prompts in `work`."""
    before = os.environ.get(OWN_TASKS)
    os.environ[OWN_TASKS] = str((work / "tasks").absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[OWN_TASKS]
        else:
            os.environ[OWN_TASKS] = before


def census_settings(
    families: tuple[str, ...], settings: AdaptSettings, model: DenoisingModel, name: str
) -> CensusSettings:
    """A census in the setting of a request that names no policy: the model's guidance, order and temperature.

    Raises `TasksError` for a model whose own guidance a census cannot record.
    """
    policy = resolve_policy(None, {}, defaults=policy_defaults(model.spec.generation.policy))
    if policy.plausibility is not None or policy.boost_threshold is not None:
        raise TasksError(f"model {model.spec.name} limits or widens its guidance by default; a census has neither")
    if policy.guidance_scale == 0.0:
        raise TasksError(f"model {model.spec.name} decodes without guidance by default: there is nothing to end")
    weight = policy.guidance_scale
    return CensusSettings(
        subtasks=families,
        rollouts=settings.rollouts,
        seed=settings.seed,
        model=name,
        weight=weight,
        repeats=1,
        extra_weights=tuple(other for other in EXTRA_WEIGHTS if other != weight),
        extra_grid=CHECKPOINTS,
        tail_widths=settings.widths,
        temperature=model.spec.generation.temperature,
        order=policy.order,
        guided_width=policy.guided_width,
    )


def _speed(model: DenoisingModel, settings: CensusSettings, units: Sequence[Unit]) -> float:
    """Forward evaluations a second of one process, on full CFG of a few prompts."""
    engine = Engine(
        model, runner=Runner(model, invariant=settings.invariant), scheduler=Scheduler(max_rows=settings.max_rows)
    )
    with compute_mode(settings.threads):
        engine.submit_all(run_job(model, settings, unit, settings.weight, 0) for unit in units)
        began = time.perf_counter()
        while engine.step():
            pass
    return engine.runner.counts.total / (time.perf_counter() - began)


def _audit_rows(steps: int, settings: AdaptSettings) -> int:
    """Upper estimate for one text of an audit: a guided run, and its rest from every fixed cut."""
    gates = {*SweepSettings().gates, *CHECKPOINTS}
    return round(2 * steps + sum((1 - gate) * steps for gate in gates) * len(settings.widths))


def adapt(planned: Plan, out: Path, *, processes: int = 1, say: Callable[[str], None] = print) -> Path:
    """Measure, train and audit; write the gates into `out`, and the report there, whose path is returned.

    Raises `StoppedError`, `ValueError`, `OSError`, or `WorkerError` where a process of the census fails.
    """
    settings, work = planned.settings, planned.work
    with own_tasks(work):
        say(f"1 of 3: measuring what guidance is worth ({planned.census_rows} forward evaluations)")
        finished = census.run(planned.census, work / "census", workers=processes)
        if finished.stopped:
            raise StoppedError(f"stopped with {finished.left} prompts left; run the same command again to go on")
        say("2 of 3: training the gates")
        training = GateTrainSettings(seed=settings.seed, trees=settings.trees)
        bundles = train(work / "census", out, training, families=planned.prompts, model=planned.model)
        say(f"3 of 3: auditing them on prompts that trained nothing ({planned.audit_rows} forward evaluations)")
        asked = AuditSettings(
            families=tuple(planned.prompts),
            samples=settings.samples,
            seed=AUDIT_SEED + settings.seed,
            widths=settings.widths,
            model=planned.model,
            accuracy=False,
        )
        content: dict[str, Any] = audit(asked, out, work / "audit", work / "census")
        export(content, out)
    return write_report(planned.prompts, bundles, content, settings, work / "audit", out / "report.html")
