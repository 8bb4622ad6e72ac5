"""One worker of a census: decodes the runs and rollouts of a shard's prompts and writes the shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.compute import compute_mode
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.policy.presets import resolve_policy
from decoding.records.trace import Trace
from decoding.request.job import Job, Sampling
from decoding.sampling.noise import NoiseKey
from gate_models.committor.committor import Cell, cell_jobs, collect, judge_of
from gate_models.committor.horizon import committed_fraction, state_at, switch_jobs
from gate_models.offline.benchmarks.tasks import family_of
from gate_models.offline.census.plan import CellWork, Unit, WorkItem, run_name, shard_name
from gate_models.offline.census.records import CellRecord, RunRecord
from gate_models.offline.census.settings import CensusSettings
from gate_models.offline.census.store import write_shard
from gate_models.offline.runs.process_pool import Report
from gate_models.offline.runs.trace_codec import decode_trace, encode_trace


@dataclass(frozen=True, slots=True)
class ShardDone:
    """What a worker says of a finished shard."""

    name: str
    prompts: tuple[tuple[str, str], ...]
    rows: int


class CensusWorker:
    """Holds the model; `run` does one shard. Implements `execute.Worker`."""

    def __init__(self, settings: CensusSettings, out: Path) -> None:
        self.settings, self.out = settings, out
        self.model = load_model(settings.model, device=settings.device, dtype=settings.dtype)

    @property
    def info(self) -> dict[str, str]:
        """Model name and hash."""
        return {"model": self.model.spec.name, "model_hash": self.model.spec.hash}

    def run(self, items: tuple[WorkItem, ...], report: Report) -> ShardDone:
        """Do the work of `items` and write it as one shard; `report` gets the rows as they run."""
        runs, cells, rows = decode_items(self.model, self.settings, items, report)
        name = shard_name(items)
        report(0)  # raises where the parent is gone: another run may be doing this work again
        write_shard(self.out, name, [run.row() for run in runs], cells)
        return ShardDone(name, tuple(item.unit.key for item in items), rows)


def decode_items(
    model: DenoisingModel, settings: CensusSettings, items: Sequence[WorkItem], report: Report
) -> tuple[list[RunRecord], list[dict[str, Any]], int]:
    """Runs, rows of `census.store.CELLS`, and forward evaluations of the work of some prompts."""
    runner = Runner(model, invariant=settings.invariant, tile=settings.max_rows)
    engine = Engine(model, runner=runner, scheduler=Scheduler(max_rows=settings.max_rows, max_queued_rows=2**62))
    with compute_mode(settings.threads):
        planned = [(item, run, run_job(model, settings, item.unit, *run)) for item in items for run in item.runs]
        recorded = _decode(engine, [job for _, _, job in planned], report)
        runs = [_record(model, *plan[:2], outcome) for plan, outcome in zip(planned, recorded, strict=True)]
        traces = _frozen_traces(settings, items, runs)
        work = [(item, cell, _jobs(model, settings, item.unit, cell, traces)) for item in items for cell in item.cells]
        outcomes = iter(_decode(engine, [job for _, _, jobs in work for job in jobs], report))
        rows = []
        for item, cell, jobs in work:
            if jobs:
                judge = judge_of(model, item.unit.prompt.constraint)
                measured = collect(cell.arm, [next(outcomes) for _ in jobs], judge)
                record = _cell(settings, cell, measured, jobs[0].start, model.spec.mask_id)
                rows.append(record.row((*item.unit.key, item.unit.gen_length, item.unit.steps)))
    return runs, rows, runner.counts.total


def label_of(unit: Unit, weight: float) -> str:
    """Names a prompt's run at a weight, canvas and steps in the noise: no two cells of any census are coupled."""
    return f"{unit.prompt.task}/{unit.prompt.id}/L{unit.gen_length}/T{unit.steps}/w{weight:g}"


def run_job(model: DenoisingModel, settings: CensusSettings, unit: Unit, weight: float, repeat: int) -> Job:
    """A run to record: full CFG at a weight (0: base) with statistics and argmax fill of every step."""
    given = {"order": settings.order, "guided_width": settings.guided_width, "guidance_scale": weight}
    plain = {"order": "random"} if settings.order == "random" else {}
    policy = resolve_policy("full_cfg", given) if weight > 0 else resolve_policy("base", plain)
    return Job(
        prompt_ids=tuple(model.codec.encode_prompt(unit.prompt.text())),
        gen_length=unit.gen_length,
        steps=unit.steps,
        policy=policy,
        noise=NoiseKey(settings.seed, purpose="generate", arm=f"{label_of(unit, weight)}|record", rollout=repeat),
        sampling=Sampling(temperature=settings.temperature),
        block_length=settings.block_length,
        record="fill",
    )


def _decode(engine: Engine, jobs: list[Job], report: Report) -> list[DecodingResult]:
    """Outcomes of jobs, decoded on this thread."""
    handles = engine.submit_all(jobs)
    counts = engine.runner.counts
    reported = counts.total
    while engine.step():
        if counts.total - reported >= 200:
            report(counts.total - reported)
            reported = counts.total
    report(counts.total - reported)
    return [handle.result(0) for handle in handles]


def _record(model: DenoisingModel, item: WorkItem, run: tuple[float, int], outcome: DecodingResult) -> RunRecord:
    unit, prompt = item.unit, item.unit.prompt
    judge = judge_of(model, prompt.constraint)
    verdict = judge(outcome.content)
    weight, repeat = run
    return RunRecord(
        task=prompt.task,
        prompt=prompt.id,
        family=family_of(prompt),
        split=unit.split,
        constraint=prompt.constraint,
        prompt_tokens=len(outcome.job.prompt_ids),
        gen_length=unit.gen_length,
        steps=unit.steps,
        weight=weight,
        repeat=repeat,
        run=run_name(weight, repeat),
        success=verdict.satisfied,
        score=verdict.score,
        rows=outcome.ledger.total,
        tokens=outcome.tokens,
        trace_bytes=encode_trace(outcome.trace),
    )


def _frozen_traces(
    settings: CensusSettings, items: Sequence[WorkItem], runs: Sequence[RunRecord]
) -> dict[tuple[str, str], Trace]:
    """The trace that each prompt's freeze cells continue: recorded just now or before, in either case as stored."""
    main = run_name(settings.weight, 0)
    traces = {(run.task, run.prompt): run.trace for run in runs if run.run == main}
    return traces | {item.unit.key: decode_trace(item.recorded) for item in items if item.recorded is not None}


def _jobs(
    model: DenoisingModel,
    settings: CensusSettings,
    unit: Unit,
    cell: CellWork,
    traces: dict[tuple[str, str], Trace],
) -> list[Job]:
    """The rollouts of a cell; none where the run ended before its step."""
    job = run_job(model, settings, unit, cell.weight, 0)
    label = label_of(unit, cell.weight)
    if cell.kind == "freeze":
        trace, step = traces[unit.key], cell.point.step
        if step >= len(trace.steps):
            return []
        state = state_at(job, trace, step, label, model.spec.mask_id)
        return cell_jobs(state, cell.arm, cell.count, first=cell.first, coupling=settings.coupling)
    if cell.kind == "switch":
        return switch_jobs(job, cell.point.step, cell.count, label=label, first=cell.first)
    noise = replace(job.noise, purpose="rollout", arm=f"{label}|fresh")
    numbers = range(cell.first, cell.first + cell.count)
    return [replace(job, noise=replace(noise, rollout=n), purpose="rollout", record="commits") for n in numbers]


def _cell(
    settings: CensusSettings, cell: CellWork, measured: Cell, start: tuple[int, ...] | None, mask_id: int
) -> CellRecord:
    """`start` is the canvas that the rollouts continue; None where they begin with an empty one."""
    return CellRecord(
        kind=cell.kind,
        run=run_name(settings.weight, 0) if cell.kind == "freeze" else "",
        weight=cell.weight,
        step=cell.point.step,
        fractions=cell.point.fractions,
        committed_fraction=0.0 if start is None else committed_fraction(start, mask_id),
        arm=cell.arm.name,
        tail_width=cell.arm.tail_width,
        first=cell.first,
        outcomes=measured.outcomes,
        score_sum=float(measured.scores.sum()),
        rows=measured.rows,
        coupling=settings.coupling,
        scores=measured.scores.astype(np.float32),
        tokens=np.array([rollout.tokens for rollout in measured.rollouts], dtype=np.int32),
    )
