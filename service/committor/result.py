"""The answer of a committor job: success rates with their intervals and, for a horizon, when guidance may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import numpy as np

from gate_models.committor.committor import Cell, Committor, Rollout
from gate_models.committor.crossfit import SPLITS, FreezeCounts, cross_fit
from gate_models.committor.horizon import FreezePoint, FreezeSweep, GridPoint
from gate_models.statistics.intervals import Estimate
from service.committor.horizons import Measured
from service.committor.plan import CommittorPlan, measured_regime
from service.committor.run import MeasuredRun, RecordedRun
from service.committor.tables import JobRecord, RolloutRecord
from service.schemas import committor as wire

_BASE: Final = "base"
_GUIDED: Final = "guided"


def result_of(plan: CommittorPlan, finished: MeasuredRun, mask_id: int) -> wire.CommittorResult:
    """The answer. Raises `ValueError` where continuations are missing."""
    points = [_point(plan, recorded, finished.rollouts, mask_id) for recorded in finished.states]
    rows = finished.recorded_rows + sum(rollout.rows for rollout in finished.rollouts)
    result = wire.CommittorResult(
        points=[_wire_point(plan, point, masked) for point, masked in points], forward_evaluations=rows
    )
    if not plan.horizon:
        return result
    sweep = FreezeSweep(plan.job.steps, tuple(point for point, _ in points))
    horizon = sweep.horizon
    result.horizon = wire.MeasuredHorizon(
        censored=horizon is None,
        step=horizon and horizon.point.step,
        fraction=horizon and horizon.point.step / plan.job.steps,
        committed_fraction=horizon and horizon.committed_fraction,
        peak=sweep.peak.point.step,
    )
    result.handoff_fate = sweep.handoff_fate
    result.cross_fitted = _cross_fitted(plan, sweep)
    return result


def measured_of(plan: CommittorPlan, job: JobRecord, result: wire.CommittorResult) -> Measured | None:
    """The horizon to keep; None where none was measured."""
    if result.horizon is None or result.handoff_fate is None:
        return None
    return Measured(
        job=plan.job,
        regime=measured_regime(plan, job.model_hash),
        step=result.horizon.step,
        peak=result.horizon.peak,
        handoff_fate=result.handoff_fate,
        rollouts=plan.count,
        prompt=str(job.request.get("prompt", "")),
        job_id=job.id,
    )


def _point(
    plan: CommittorPlan, recorded: RecordedRun, rollouts: Sequence[RolloutRecord], mask_id: int
) -> tuple[FreezePoint, int]:
    """The committor of a state and the number of its masked positions.

    The unguided arm is called "base" here, for any width of its tail.
    """
    cells = {}
    for arm, name in zip(plan.arms, (_BASE, _GUIDED), strict=True):
        continuations = [r for r in rollouts if (r.step, r.arm) == (recorded.step, arm.name)]
        if len(continuations) != plan.count:
            raise ValueError(
                f"{len(continuations)} of {plan.count} continuations of {arm.name} at step {recorded.step} are there"
            )
        cells[name] = Cell(name, tuple(Rollout(r.satisfied, r.score, (), r.rows) for r in continuations))
    masked = sum(token == mask_id for token in recorded.canvas)
    grid = next((point for point in plan.points if point.step == recorded.step), GridPoint(recorded.step, ()))
    return FreezePoint(grid, 1.0 - masked / plan.job.open_length, Committor(cells)), masked


def _wire_point(plan: CommittorPlan, point: FreezePoint, masked: int) -> wire.CommittorPoint:
    committor = point.committor
    # Batches may still round differently: continuations that differ keep their interval.
    alike = all(len({(one.success, one.score) for one in cell.rollouts}) == 1 for cell in committor.cells.values())
    exact = alike and not plan.job.draws
    return wire.CommittorPoint(
        step=point.point.step,
        fraction=point.point.step / plan.job.steps,
        committed_fraction=point.committed_fraction,
        masked=masked,
        q0=_proportion(committor.base, exact=exact),
        qg=_proportion(committor.guided, exact=exact),
        value=_interval(committor.value(), exact=exact),
        graded_value=_interval(committor.graded_value(), exact=exact),
    )


def _proportion(cell: Cell, *, exact: bool) -> wire.Proportion:
    interval = _interval(cell.success_rate(), exact=exact).model_dump()
    return wire.Proportion(**interval, successes=cell.successes, rollouts=cell.count, mean_score=cell.mean_score)


def _interval(value: Estimate, *, exact: bool) -> wire.Interval:
    if exact:
        return wire.Interval(estimate=value.value, low=value.value, high=value.value, method="deterministic")
    fields = asdict(value)
    return wire.Interval(estimate=fields.pop("value"), **fields)


def _cross_fitted(plan: CommittorPlan, sweep: FreezeSweep) -> wire.CrossFitted:
    base, guided = ([point.committor.cells[name] for point in sweep.points] for name in (_BASE, _GUIDED))
    counts = FreezeCounts(
        key="",
        steps=tuple(point.point.step for point in sweep.points),
        total_steps=sweep.steps,
        base=np.array([cell.successes for cell in base]),
        guided=np.array([cell.successes for cell in guided]),
        base_count=np.array([cell.count for cell in base]),
        guided_count=np.array([cell.count for cell in guided]),
    )
    value = cross_fit(counts, np.random.default_rng(plan.job.noise.seed))
    return wire.CrossFitted(
        splits=SPLITS,
        full_cfg=value.full,
        handoff=value.handoff,
        difference=value.difference,
        optimism=value.optimism,
        censored_share=value.censored_share,
        median_fraction=value.a_star_split,
    )
