"""Estimates of rows: the most that a job may take, before it starts, and what an end-of-text fill has saved."""

from __future__ import annotations

import math

from decoding.policy.repair import END, LOOKING, TRUNCATED_STEPS, Repair
from decoding.records.trace import Trace
from decoding.request.job import Job
from decoding.sampling.block_schedule import check_blocks, step_at


def selection_rows(job: Job, repair: Repair) -> int:
    """Upper limit of the rows that choosing the positions of a round takes: rollouts on every position, or one look."""
    if repair.selector == LOOKING:
        return _step_rows(job)
    if not repair.rollout_count:
        return 0
    steps = 1 if repair.anchor == END else max(1, job.steps - step_at(float(repair.anchor), job.steps))
    if repair.selector == "truncated_committor":
        steps = min(steps, TRUNCATED_STEPS + 1)
    return job.open_length * repair.rollout_count * steps


def round_rows(job: Job, repair: Repair) -> int:
    """Upper limit of the rows of one round of an attempt's job: the selection, then the guided steps."""
    blocks = check_blocks(job.gen_length, job.steps, job.block_length)
    steps = min(repair.reopen, job.open_length, job.steps // blocks)
    if repair.selector == "restart":
        steps = job.steps
    elif repair.anchor != END:
        steps = max(steps, job.steps - step_at(float(repair.anchor), job.steps))
    return selection_rows(job, repair) + steps * _step_rows(job)


def _step_rows(job: Job) -> int:
    return 1 if job.policy.guidance_scale == 0.0 else 2


def most_rows(job: Job) -> int:
    """Upper estimate of the rows that a job still takes, for admission: its repair rounds and attempts included.

    Its budget bounds all but the first pass.
    """
    if not job.judged:
        return job.first_pass_rows
    total = first = 0
    for index in range(job.attempt_count):
        attempt = job.attempt(index)
        planned = attempt.first_pass_rows
        first = first or planned
        repair = attempt.policy.repair
        total += planned + (repair.max_rounds * round_rows(attempt, repair) if repair else 0)
    budget = job.policy.budget_rows
    return total if budget is None else max(first, min(total, budget))


def skipped_rows(job: Job, trace: Trace, spent: int, handoff_step: int | None) -> int:
    """Rows of the same run without the end-of-text fill, less those `spent`.

    Where the tokens set the pace (adaptive tail, boosted steps, re-checks) that run's length is not known, and the
    answer is an estimate from this run's own pace; everywhere else it is exact.
    """
    policy, every = job.policy, trace.steps
    base = [stats for stats in every if stats.phase == "base"]
    free = policy.boost_threshold is not None or policy.gate.recheck is not None
    if not free and (not policy.paced_by_tokens or not base):
        return max(0, job.planned_rows(handoff_step) - spent)
    pace = max(1.0, sum(len(stats.positions) for stats in base or every) / len(base or every))
    return (1 if base else 2) * math.ceil(sum(len(stats.filled) for stats in every) / pace)
