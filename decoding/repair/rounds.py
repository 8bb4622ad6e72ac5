"""The jobs of a repair round: the anchored canvas, its guided continuation, the rollouts that choose positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from decoding.gates.builtin import NeverGate
from decoding.policy.decoding_policy import DecodingPolicy, Preset
from decoding.policy.gate import GateSettings
from decoding.policy.repair import END, TRUNCATED_STEPS, Repair
from decoding.repair.passes import DecodedText
from decoding.request.job import Anchor, Job
from decoding.sampling.block_schedule import Place, check_blocks, step_at
from decoding.sampling.commit_order import base_order
from decoding.sampling.stability import NO_TAIL


def guided_policy(policy: DecodingPolicy) -> DecodingPolicy:
    """How reopened positions are decoded: serially, guided to the end where the policy guides at all."""
    preset: Preset = "full_cfg" if policy.guidance_scale > 0.0 else "base"
    return DecodingPolicy(
        preset,
        guidance_scale=policy.guidance_scale,
        order=policy.order,
        plausibility=policy.plausibility,
        gate=GateSettings("never"),
    )


def base_policy(policy: DecodingPolicy) -> DecodingPolicy:
    """Serial decoding without guidance."""
    return DecodingPolicy("base", guidance_scale=0.0, order=base_order(policy.order), gate=GateSettings("never"))


def anchor_of(decoded: DecodedText, repair: Repair, mask_id: int) -> Anchor:
    """Where a round begins in the run of `decoded`; a run that was over by then is anchored at its end."""
    job, trace = decoded.state.job, decoded.state.trace
    if repair.selector == "restart":
        return Anchor(job.empty(mask_id), 0, None)
    if repair.anchor == END:
        return Anchor(decoded.tokens, job.steps, None)
    step = step_at(float(repair.anchor), job.steps)
    count = sum(stats.step < step for stats in trace.steps)
    if count == len(trace.steps) or trace.steps[count].mending:
        return Anchor(decoded.tokens, job.steps, None)
    canvas = tuple(trace.prefix(count, mask_id).tolist())
    return Anchor(canvas, trace.steps[count].step, trace.place(count), trace.tail(count))


def reopened_job(job: Job, anchor: Anchor, positions: Iterable[int], number: int, mask_id: int) -> Job:
    """The guided continuation of `anchor` with `positions` set back to MASK, as repair round `number`.

    The quota is the canvas's own: every mask left over the steps left, so that each reopened position is committed
    again. Where the canvas is one block, no step is spent on nothing.
    """
    canvas = np.array(anchor.canvas)
    canvas[list(positions)] = mask_id
    masks = int((canvas == mask_id).sum())
    step, place = start_of(job, anchor, masks)
    return replace(
        job,
        policy=guided_policy(job.policy),
        gate=NeverGate(),
        handed_off=False,
        noise=job.noise.with_round(number),
        purpose="repair",
        start=tuple(canvas.tolist()),
        start_step=step,
        start_place=place,
        start_tail=NO_TAIL,  # the round has no tail of its own
    )


def start_of(job: Job, anchor: Anchor, masks: int) -> tuple[int, Place | None]:
    """The step from which `masks` masked positions are decoded after `anchor`."""
    blocks = check_blocks(job.gen_length, job.steps, job.block_length)
    if blocks > 1 and anchor.step < job.steps:
        return anchor.step, anchor.place
    left = job.steps // blocks if anchor.step == job.steps else job.steps - anchor.step
    return job.steps - min(masks, left), None


def rollout_jobs(
    job: Job, repair: Repair, anchor: Anchor, positions: Sequence[int], number: int, mask_id: int
) -> list[Job]:
    """Base continuations of `anchor` with each of `positions` reopened alone: `repair.rollout_count` for each in turn.

    The counterfactual committor q0 of reopening a position is the success of its rollouts (paper Section 5.3); those of
    the truncated one take 8 steps, then fill what is still masked with its argmax.
    """
    jobs = []
    for position in positions:
        opened = reopened_job(job, anchor, (position,), number, mask_id)
        cut = opened.start_step + TRUNCATED_STEPS if repair.selector == "truncated_committor" else job.steps
        one = replace(
            opened,
            fill_step=cut if cut < job.steps else None,
            policy=base_policy(job.policy),
            purpose="rollout",
            record="commits",
        )
        arm = f"{job.noise.arm}reopen@{position}"
        jobs += [
            replace(one, noise=replace(job.noise, purpose="rollout", arm=arm, rollout=index, round=number))
            for index in range(repair.rollout_count)
        ]
    return jobs
