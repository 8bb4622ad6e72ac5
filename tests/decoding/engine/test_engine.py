"""The loop on a tiny random model: rows, widths, quotas and orders of every policy."""

from __future__ import annotations

import math

import pytest

from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from decoding.request.canvas import CanvasState
from decoding.request.job import Sampling
from decoding.sampling.block_schedule import step_at
from tests.decoding.tiny import job


def widths(handle: Handle) -> list[tuple[str, int]]:
    return [(s.phase, len(s.positions)) for s in handle.result(600).trace.steps]


@pytest.mark.parametrize(("length", "steps"), [(12, 12), (12, 20), (12, 5), (1, 1), (1, 7), (64, 64)])
def test_full_cfg_costs_two_rows_a_step(engine: Engine, model: MiniModel, length: int, steps: int) -> None:
    handle = engine.submit(job(model, length=length, steps=steps))
    outcome = handle.result(600)
    assert outcome.ledger.of("conditional") == outcome.ledger.of("unconditional") == steps
    assert outcome.steps == steps
    assert sum(width for _, width in widths(handle)) == length
    assert model.spec.mask_id not in outcome.tokens
    assert outcome.ledger.saved(handle.job.full_cfg_equivalent) == 0


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("tail", [1, 3, 8, 12])
@pytest.mark.parametrize("steps", [12, 16, 24])
def test_handoff_rows(engine: Engine, model: MiniModel, fraction: float, tail: int, steps: int) -> None:
    """2 step_at(f, T) guided rows, then ceil(masks / K) base rows (the schedule's steps for K = 1)."""
    handle = engine.submit(job(model, preset="handoff", fraction=fraction, steps=steps, policy={"tail_width": tail}))
    outcome = handle.result(600)
    guided = step_at(fraction, steps)
    left = max(0, 12 - guided)
    base = steps - guided if tail == 1 else -(-left // tail)
    assert outcome.ledger.of("unconditional") == guided
    assert outcome.ledger.total == 2 * guided + base
    assert outcome.ledger.total == handle.job.planned_rows()
    assert outcome.handoff_step == (guided if guided < steps and (guided or fraction == 0.0) else None)


def test_base_preset_runs_no_unconditional_row(engine: Engine, model: MiniModel) -> None:
    outcome = engine.submit(job(model, preset="base")).result(600)
    assert outcome.ledger.of("unconditional") == 0
    assert outcome.ledger.total == 12


def test_w_zero_equals_base(engine: Engine, model: MiniModel) -> None:
    zero = engine.submit(job(model, preset="full_cfg", policy={"guidance_scale": 0.0})).result(600)
    base = engine.submit(job(model, preset="base")).result(600)
    assert zero.tokens == base.tokens
    assert zero.ledger.total == 12


@pytest.mark.parametrize("width", [2, 5, 12])
def test_parallel_decoding_under_full_cfg(engine: Engine, model: MiniModel, width: int) -> None:
    handle = engine.submit(job(model, policy={"guided_width": width}))
    steps = -(-12 // width)
    assert [w for _, w in widths(handle)] == [min(width, 12 - i * width) for i in range(steps)]
    assert handle.result().ledger.total == 2 * steps == handle.job.planned_rows()


def test_parallel_base_decoding(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", policy={"tail_width": 5}))
    assert widths(handle) == [("base", 5), ("base", 5), ("base", 2)]


def test_a_schedule_that_asks_more_than_the_width_wins(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", steps=2, policy={"tail_width": 2}))
    assert sum(w for _, w in widths(handle)) == 12
    assert handle.result().steps <= 2


def test_adaptive_tail_commits_by_confidence(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(job(model, preset="base", length=32, policy={"tail_width": 6, "tail_threshold": 0.12}))
    outcome = handle.result(600)
    sizes = set()
    for stats in outcome.trace.steps:
        sizes.add(len(stats.positions))
        assert 1 <= len(stats.positions) <= 6
        if len(stats.positions) > 1:
            assert min(stats.confidence) >= 0.12
    assert len(sizes) > 1
    always = engine.submit(
        job(model, preset="base", length=32, policy={"tail_width": 6, "tail_threshold": 0.0})
    ).result(600)
    assert always.ledger.total == math.ceil(32 / 6)


@pytest.mark.parametrize("confidence", ["probability", "margin", "neg_entropy", "random"])
def test_an_adaptive_tail_commits_all_that_reach_the_threshold(
    engine: Engine, model: MiniModel, confidence: str
) -> None:
    """Whatever ranks the candidates: first those that reach it, in rank order, then what the schedule needs."""
    sampling = Sampling(confidence=confidence)
    request = job(model, preset="base", length=24, sampling=sampling, policy={"tail_width": 6, "tail_threshold": 0.12})
    state = CanvasState(request, model.spec.mask_id, model.spec.end_ids)
    runner = Runner(model, invariant=True)
    while not state.finished:
        (result,) = runner.run([state])
        reached = int((result.candidates.probability >= 0.12).sum())
        event = state.apply(result.candidates, result.positions)
        assert len(event.positions) == min(max(1, reached), 6, result.positions.size)


@pytest.mark.parametrize("steps", [2, 3, 5, 12])
def test_an_adaptive_tail_never_runs_past_its_steps(engine: Engine, model: MiniModel, steps: int) -> None:
    request = job(model, preset="base", steps=steps, policy={"tail_width": 6, "tail_threshold": 1.0})
    outcome = engine.submit(request).result(600)
    assert outcome.ledger.total <= steps
    assert model.spec.mask_id not in outcome.tokens


@pytest.mark.parametrize("order", ["confidence", "random", "guidance_boost", "boost_confidence"])
@pytest.mark.parametrize("confidence", ["probability", "margin", "neg_entropy", "random"])
def test_every_order_fills_the_canvas(engine: Engine, model: MiniModel, order: str, confidence: str) -> None:
    request = job(
        model,
        preset="handoff",
        fraction=0.5,
        sampling=Sampling(confidence=confidence),
        policy={"order": order, "tail_width": 4},
    )
    outcome = engine.submit(request).result(600)
    assert model.spec.mask_id not in outcome.tokens


def test_confidence_order_commits_the_most_confident(engine: Engine, model: MiniModel) -> None:
    runner, request = Runner(model, invariant=True), job(model, preset="base")
    state = CanvasState(request, model.spec.mask_id, model.spec.end_ids)
    (result,) = runner.run([state])
    event = state.apply(result.candidates, result.positions)
    assert event.positions == (int(result.positions[int(result.candidates.probability.argmax())]),)


def test_blocks_are_decoded_left_to_right(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(
        job(model, preset="handoff", fraction=0.25, length=12, block_length=4, policy={"tail_width": 2})
    )
    order = handle.result(600).trace.commit_order()
    assert [p // 4 for p in order] == sorted(p // 4 for p in order)
    assert handle.result().ledger.total == handle.job.planned_rows()


def test_guided_boost_order_differs_from_confidence(engine: Engine, model: MiniModel) -> None:
    a = engine.submit(job(model, length=32)).result(600).trace.commit_order()
    b = engine.submit(job(model, length=32, policy={"order": "guidance_boost"})).result(600).trace.commit_order()
    assert a != b
