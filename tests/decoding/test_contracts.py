"""Contracts that hold across files: batch composition, ledger, replay, rollouts."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.engine.engine import Engine
from decoding.engine.rollouts import continuations, run_all
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.gates.builtin import DrainedGate
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.gate import GateSettings
from decoding.records.ledger import BRANCHES, PURPOSES, Ledger
from decoding.request.canvas import CanvasState
from decoding.request.job import Job, Sampling
from decoding.sampling.block_schedule import step_at
from tests.decoding.tiny import ends_early_model, job, tiny_model

MODEL = tiny_model()


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any mix of policies, lengths, samplings and priorities."""
    length = draw(st.integers(1, 24))
    steps = draw(st.integers(1, 32))
    kind = draw(st.sampled_from(["base", "full_cfg", "fraction", "drained"]))
    policy: dict[str, Any] = {}
    if kind != "full_cfg":
        policy["tail_width"] = draw(st.integers(1, length))
    if kind != "base":
        policy["guided_width"] = draw(st.integers(1, min(4, length)))
        policy["order"] = draw(st.sampled_from(["confidence", "random", "guidance_boost"]))
    extra: dict[str, Any] = {}
    if kind == "fraction":
        extra["fraction"] = draw(st.floats(0, 1))
    if kind == "drained":
        threshold = draw(st.floats(0.05, 1.0))
        policy["gate"], extra["gate"] = GateSettings("drained", threshold=threshold), DrainedGate(threshold)
    return job(
        MODEL,
        preset={"fraction": "handoff", "drained": "handoff"}.get(kind, kind),
        seed=draw(st.integers(0, 2**40)),
        length=length,
        steps=steps,
        prompt=draw(st.sampled_from(["", "a", "b c d", "x y z " * 12])),
        policy=policy,
        sampling=Sampling(
            temperature=draw(st.sampled_from([0.0, 0.6, 1.0])),
            top_p=draw(st.sampled_from([1.0, 0.8])),
            confidence=draw(st.sampled_from(["probability", "margin", "random"])),
            eos_fill=draw(st.booleans()),
        ),
        priority=draw(st.sampled_from(["interactive", "background"])),
        record=draw(st.sampled_from(["commits", "stats", "fill"])),
        **extra,
    )


def finish(engine: Engine) -> None:
    while engine.step():
        pass


@settings(max_examples=40, deadline=None)
@given(
    st.lists(jobs(), min_size=1, max_size=12),
    st.integers(2, 20),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 11)), max_size=4),
)
def test_the_ledgers_sum_to_what_the_runner_ran(work: list[Job], max_rows: int, cancels: list[tuple[int, int]]) -> None:
    """Under random mixes with cancellations; every finished canvas is whole and saved + spent + skipped = 2T."""
    engine = Engine(MODEL, scheduler=Scheduler(max_rows=max_rows))
    handles = engine.submit_all(work)
    steps = 0
    while engine.step():
        steps += 1
        for at, index in cancels:
            if at == steps and index < len(handles):
                handles[index].cancel()
    total = Ledger.sum(handle.state.ledger for handle in handles)
    assert total.total == engine.runner.counts.total
    for branch in BRANCHES:
        assert total.of(branch) == engine.runner.counts.rows[branch]
    assert sum(total.of(purpose=purpose) for purpose in PURPOSES) == total.total
    for handle in handles:
        assert handle.done
        if handle.error is None:
            outcome = handle.result()
            assert MODEL.spec.mask_id not in outcome.tokens
            equivalent = handle.job.full_cfg_equivalent
            assert outcome.ledger.saved(equivalent) + outcome.ledger.total + outcome.ledger.skipped_by_eos == equivalent
            if not handle.job.sampling.eos_fill:
                assert outcome.ledger.total == handle.job.planned_rows(outcome.handoff_step)
            assert sorted(outcome.trace.commit_order()) == list(range(handle.job.gen_length))


@settings(max_examples=25, deadline=None)
@given(jobs(), st.lists(jobs(), max_size=10), st.randoms(use_true_random=False))
def test_invariant_mode_gives_the_same_tokens_whatever_shares_the_batch(
    target: Job, others: list[Job], rng: random.Random
) -> None:
    """Alone; among others; at another slot; joined later."""

    def decode(before: list[Job], after: list[Job], delay: int) -> tuple[tuple[int, ...], list[Any]]:
        engine = Engine(MODEL, runner=Runner(MODEL, invariant=True))
        engine.submit_all(before)
        for _ in range(delay):
            engine.step()
        handle = engine.submit(target)
        engine.submit_all(after)
        finish(engine)
        outcome = handle.result()
        return outcome.tokens, outcome.trace.steps

    alone = decode([], [], 0)
    shuffled = rng.sample(others, len(others))
    cut = rng.randint(0, len(others))
    assert decode(shuffled[:cut], shuffled[cut:], 0) == alone
    assert decode(shuffled, [], rng.randint(1, 5)) == alone


def test_invariant_mode_logits_are_bit_equal_at_every_slot() -> None:
    """The candidates' statistics are functions of the logits: they must be equal to the last bit."""

    def state(seed: int, prompt: str) -> CanvasState:
        return CanvasState(job(MODEL, seed=seed, prompt=prompt), MODEL.spec.mask_id, MODEL.spec.end_ids)

    runner = Runner(MODEL, invariant=True)
    (alone,) = runner.run([state(0, "a b c")])
    for slot in range(32):
        crowd = [state(i + 1, "x y z" if i % 3 else "a " * 30) for i in range(31)]
        crowd.insert(slot, state(0, "a b c"))
        result = runner.run(crowd)[slot]
        for name in ("token", "probability", "entropy", "kl", "total_variation"):
            assert torch.equal(getattr(result.candidates, name), getattr(alone.candidates, name)), (slot, name)


def test_default_mode_keeps_noise_and_schedule_and_only_last_bits_differ() -> None:
    work = [job(MODEL, seed=s, length=16) for s in range(40)]

    def decode(together: bool) -> list[tuple[int, ...]]:
        engine = Engine(MODEL)
        handles = []
        for request in work:
            handles.append(engine.submit(request))
            if not together:
                finish(engine)
        finish(engine)
        return [handle.result().tokens for handle in handles]

    differing = sum(a != b for a, b in zip(decode(True), decode(False), strict=True))
    assert differing <= 4


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_replay_rebuilds_every_prefix_without_the_model(request: Job) -> None:
    engine = Engine(MODEL, runner=Runner(MODEL, invariant=True))
    handle = engine.submit(request)
    canvases = [handle.state.tokens.copy()]
    while engine.step():
        canvases.append(handle.state.tokens.copy())
    trace = handle.result().trace
    for index, canvas in enumerate(canvases):
        assert (trace.prefix(index, MODEL.spec.mask_id) == canvas).all()
    with pytest.raises(ValueError, match="prefix"):
        trace.prefix(len(canvases), MODEL.spec.mask_id)


@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("order", ["confidence", "guidance_boost"])
def test_the_guided_continuation_of_a_replayed_prefix_is_the_recorded_run(order: str, block_length: int | None) -> None:
    """Same noise key, K = 1: token for token (contract 4)."""
    request = job(MODEL, length=16, seed=11, policy={"order": order}, block_length=block_length)
    engine = Engine(MODEL, runner=Runner(MODEL, invariant=True))
    recorded = engine.submit(request)
    finish(engine)
    trace = recorded.result().trace
    for step in range(1, 16):
        prefix = tuple(trace.prefix(step, MODEL.spec.mask_id).tolist())
        handle = engine.submit(dataclasses.replace(request, start=prefix, start_step=step))
        finish(engine)
        assert handle.result().tokens == recorded.result().tokens
        assert handle.result().ledger.total == 2 * (16 - step)


@pytest.mark.parametrize("kind", ["wide guided in blocks", "fill in blocks", "fill"])
def test_a_run_can_be_taken_up_where_its_schedule_stood(kind: str) -> None:
    """Where the step alone is ambiguous, `Trace.place` continues the recorded run exactly."""
    model, different = MODEL if kind.startswith("wide") else ends_early_model(), 0
    for seed in range(4):
        if kind == "wide guided in blocks":
            request = job(model, length=16, seed=seed, policy={"guided_width": 3}, block_length=4)
        else:
            blocks = 4 if kind == "fill in blocks" else None
            request = job(model, length=16, seed=seed, sampling=Sampling(eos_fill=True), block_length=blocks)
        engine = Engine(model, runner=Runner(model, invariant=True))
        recorded = engine.submit(request)
        finish(engine)
        trace, expected = recorded.result().trace, recorded.result().tokens
        for step in range(1, len(trace.steps)):
            start = tuple(trace.prefix(step, model.spec.mask_id).tolist())
            resumed = dataclasses.replace(request, start=start, start_step=step, start_place=trace.place(step))
            handle = engine.submit(resumed)
            finish(engine)
            assert handle.result().tokens == expected
            assert handle.result().ledger.total == recorded.result().ledger.total - 2 * step
            different += trace.place(step) != (step // 4, 4 - step % 4, False)
    assert different


def test_argmax_fill_needs_no_forward() -> None:
    engine = Engine(MODEL)
    handle = engine.submit(job(MODEL, record="fill", length=10))
    finish(engine)
    trace = handle.result().trace
    for step in range(10):
        filled = trace.argmax_fill(step, MODEL.spec.mask_id)
        prefix = trace.prefix(step, MODEL.spec.mask_id)
        assert MODEL.spec.mask_id not in filled
        assert (filled[prefix != MODEL.spec.mask_id] == prefix[prefix != MODEL.spec.mask_id]).all()


def test_stats_cover_masked_and_committed_positions() -> None:
    engine = Engine(MODEL)
    handle = engine.submit(job(MODEL, preset="handoff", fraction=0.5, record="stats", length=10))
    finish(engine)
    for index, stats in enumerate(handle.result().trace.steps):
        assert stats.masked_confidence is not None
        assert stats.committed_entropy is not None
        assert stats.masked_confidence.count == stats.masked == 10 - index
        assert stats.committed_confidence is not None
        assert stats.committed_confidence.count == index + 1
        assert stats.masked_confidence.minimum <= stats.masked_confidence.q10 <= stats.masked_confidence.q90
        assert (stats.kl is None) == (stats.phase == "base") == (stats.total_variation_max is None)
        assert stats.to_dict()["step"] == index


# -- rollouts --------------------------------------------------------------------------------------------------------


def test_rollouts_are_independent_priced_apart_and_leave_the_prefix_alone(engine: Engine, model: MiniModel) -> None:
    source = engine.submit(job(model, length=12))
    trace = source.result(30).trace
    step = step_at(0.3, 12)
    prefix = trace.prefix(step, model.spec.mask_id)
    base = continuations(source.job, prefix.tolist(), step, guided=False, count=8, arm="base@0.30")
    guided = continuations(source.job, prefix.tolist(), step, guided=True, count=8, arm="guided@0.30")
    outcomes = [handle.result() for handle in run_all(engine, [*base, *guided], timeout=600)]
    assert len({outcome.tokens for outcome in outcomes}) > 8
    kept = prefix != model.spec.mask_id
    for index, outcome in enumerate(outcomes):
        assert [t for t, keep in zip(outcome.tokens, kept, strict=True) if keep] == prefix[kept].tolist()
        assert outcome.ledger.total == (1 if index < 8 else 2) * (12 - step)
        assert outcome.ledger.of(purpose="rollout") == outcome.ledger.total
    again = run_all(
        engine, continuations(source.job, prefix.tolist(), step, guided=False, count=8, arm="base@0.30"), 60
    )
    assert [h.result().tokens for h in again] == [o.tokens for o in outcomes[:8]]


def test_wide_rollouts(engine: Engine, model: MiniModel) -> None:
    source = job(model, length=12)
    start = (model.spec.mask_id,) * 12
    (handle,) = run_all(engine, continuations(source, start, 0, guided=False, count=1, arm="x", tail_width=5), 30)
    assert handle.result().ledger.total == 3


def test_rollouts_of_a_base_job_have_no_guided_arm(model: MiniModel) -> None:
    with pytest.raises(ValueError, match="guidance_scale"):
        continuations(job(model, preset="base"), (model.spec.mask_id,) * 12, 0, guided=True, count=1, arm="x")
