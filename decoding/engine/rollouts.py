"""Continues a half-decoded text N times with new noise; the share that succeeds says how promising the text is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.gates.builtin import NeverGate
from decoding.policy.gate import GateSettings
from decoding.records.ledger import Purpose
from decoding.request.job import Anchor, Job
from decoding.sampling.stability import NO_TAIL

HANDED_OFF = GateSettings("fraction", fraction=0.0)


def continuations(
    job: Job,
    anchor: Anchor,
    *,
    guided: bool,
    count: int,
    arm: str,
    tail_width: int | None = None,
    purpose: Purpose = "rollout",
) -> list[Job]:
    """`count` jobs that continue `job`'s run from `anchor`, under guidance to the end or under base.

    Each has its own noise: the seed is `job`'s, (purpose, arm, rollout) are the cell's. `tail_width` overrides the
    policy's for base continuations. They run at background priority.
    """
    policy = replace(job.policy, repair=None, budget_rows=None)  # a continuation is one run, whatever its text
    if not guided:
        if policy.guidance_scale > 0.0:
            policy = replace(policy, preset="handoff", gate=HANDED_OFF)
        width = policy.tail_width if tail_width is None else tail_width
        policy = policy.with_tail_width(width)
    if guided and policy.guidance_scale == 0.0:
        raise ValueError("a guided continuation needs guidance_scale > 0")
    return [
        replace(
            job,
            policy=policy,
            gate=NeverGate(),
            attempts=(),
            start=anchor.canvas,
            start_step=anchor.step,
            start_place=anchor.place,
            start_tail=NO_TAIL if guided else anchor.tail,
            handed_off=not guided,
            noise=replace(job.noise, purpose=purpose, arm=arm, rollout=index, round=0),
            purpose=purpose,
            priority="background",
        )
        for index in range(count)
    ]


def run_all(engine: Engine, jobs: Sequence[Job], timeout: float | None = None) -> list[Handle]:
    """Submit jobs together and wait for the last; on any failure the rest is cancelled and the error raised."""
    handles = engine.submit_all(jobs)
    try:
        for handle in handles:
            handle.result(timeout)
    except BaseException:
        for handle in handles:
            handle.cancel()
        raise
    return handles
