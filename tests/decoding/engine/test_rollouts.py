"""Rollouts: many continuations of one state, each with noise of its own, priced apart."""

from __future__ import annotations

import pytest

from decoding.engine.engine import Engine
from decoding.engine.rollouts import continuations, run_all
from decoding.models.bert_mini.network import MiniModel
from decoding.request.job import Anchor
from decoding.sampling.block_schedule import step_at
from tests.decoding.tiny import job


def test_rollouts_are_independent_priced_apart_and_leave_the_prefix_alone(engine: Engine, model: MiniModel) -> None:
    source = engine.submit(job(model, length=12))
    trace = source.result(600).trace
    step = step_at(0.3, 12)
    prefix = trace.prefix(step, model.spec.mask_id)
    anchor = Anchor(tuple(prefix.tolist()), step)
    base = continuations(source.job, anchor, guided=False, count=8, arm="base@0.30")
    guided = continuations(source.job, anchor, guided=True, count=8, arm="guided@0.30")
    outcomes = [handle.result() for handle in run_all(engine, [*base, *guided], timeout=600)]
    assert len({outcome.tokens for outcome in outcomes}) > 8
    kept = prefix != model.spec.mask_id
    for index, outcome in enumerate(outcomes):
        assert [t for t, keep in zip(outcome.tokens, kept, strict=True) if keep] == prefix[kept].tolist()
        assert outcome.ledger.total == (1 if index < 8 else 2) * (12 - step)
        assert outcome.ledger.of(purpose="rollout") == outcome.ledger.total
    again = run_all(
        engine,
        continuations(source.job, anchor, guided=False, count=8, arm="base@0.30"),
        60,
    )
    assert [h.result().tokens for h in again] == [o.tokens for o in outcomes[:8]]


def test_wide_rollouts(engine: Engine, model: MiniModel) -> None:
    source = job(model, length=12)
    anchor = Anchor((model.spec.mask_id,) * 12, 0)
    (handle,) = run_all(engine, continuations(source, anchor, guided=False, count=1, arm="x", tail_width=5), 30)
    assert handle.result().ledger.total == 3


def test_rollouts_of_a_base_job_have_no_guided_arm(model: MiniModel) -> None:
    with pytest.raises(ValueError, match="guidance_scale"):
        continuations(job(model, preset="base"), Anchor((model.spec.mask_id,) * 12, 0), guided=True, count=1, arm="x")
