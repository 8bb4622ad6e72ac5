"""What repair rounds and further attempts cost at most, before any of them is run."""

from __future__ import annotations

from decoding.policy.repair import END, LOOKING, TRUNCATED_STEPS, Repair
from decoding.request.job import Job
from decoding.sampling.block_schedule import check_blocks, step_at


def selection_rows(job: Job, repair: Repair) -> int:
    """Most rows that choosing the positions of one round takes: the selector's rollouts, on every position at worst, or
    its one look.
    """
    if repair.selector == LOOKING:
        return _step_rows(job)
    if not repair.rollout_count:
        return 0
    steps = 1 if repair.anchor == END else max(1, job.steps - step_at(float(repair.anchor), job.steps))
    if repair.selector == "truncated_committor":
        steps = min(steps, TRUNCATED_STEPS + 1)
    return job.gen_length * repair.rollout_count * steps


def round_rows(job: Job, repair: Repair) -> int:
    """Most rows of one round of an attempt's job: what the selection takes, then the guided steps."""
    blocks = check_blocks(job.gen_length, job.steps, job.block_length)
    steps = min(repair.reopen, job.gen_length, job.steps // blocks)
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
        own = job.attempt(index)
        planned = own.first_pass_rows
        first = first or planned
        repair = own.policy.repair
        total += planned + (repair.max_rounds * round_rows(own, repair) if repair else 0)
    budget = job.policy.budget_rows
    return total if budget is None else max(first, min(total, budget))
