"""A trace rebuilds every prefix of its run without the model, and a run is taken up again from any of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.request.job import Job, Sampling
from tests.decoding.random_jobs import MODEL, finish, jobs
from tests.decoding.tiny import ends_early_model, job


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
