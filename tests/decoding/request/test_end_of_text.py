"""eos_fill, suppress_eos, defer_eos and their place in the ledger."""

from __future__ import annotations

import pytest

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.request.job import Sampling
from tests.decoding.tiny import EndsEarly, ends_early_model, job


@pytest.fixture(scope="module")
def ends_early() -> EndsEarly:
    return ends_early_model()


@pytest.mark.parametrize("tail", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_eos_fill_skips_rows_and_books_them_apart(ends_early: EndsEarly, tail: int, seed: int) -> None:
    with Engine(ends_early, runner=Runner(ends_early, invariant=True)) as engine:
        request = job(
            ends_early,
            preset="handoff",
            fraction=0.3,
            length=16,
            seed=seed,
            sampling=Sampling(eos_fill=True),
            policy={"tail_width": tail},
        )
        handle = engine.submit(request)
        outcome = handle.result(600)
    end = outcome.tokens.index(ends_early.spec.end_ids[0])
    filled = {position for stats in outcome.trace.steps for position in stats.filled}
    assert filled
    assert min(filled) > end
    assert {outcome.tokens[position] for position in filled} == set(ends_early.spec.end_ids)
    assert outcome.content == outcome.tokens[:end]
    assert outcome.ledger.skipped_by_eos > 0
    assert outcome.ledger.total + outcome.ledger.skipped_by_eos == handle.job.planned_rows(outcome.handoff_step)
    plain_saving = handle.job.full_cfg_equivalent - handle.job.planned_rows(outcome.handoff_step)
    assert outcome.ledger.saved(handle.job.full_cfg_equivalent) == plain_saving


def test_suppress_eos(ends_early: EndsEarly) -> None:
    with Engine(ends_early) as engine:
        outcome = engine.submit(job(ends_early, sampling=Sampling(suppress_eos=True))).result(600)
    assert outcome.finish_reason == "length"
    assert not set(outcome.tokens) & set(ends_early.spec.end_ids)


def test_defer_eos_commits_end_of_text_last(ends_early: EndsEarly) -> None:
    with Engine(ends_early) as engine:
        outcome = engine.submit(job(ends_early, length=24, sampling=Sampling(defer_eos=True))).result(600)
    ends = [t in ends_early.spec.end_ids for s in outcome.trace.steps for t in s.tokens]
    first = ends.index(True)
    assert any(ends)
    masked_before = [s.masked for s in outcome.trace.steps]
    assert first > 0 or masked_before[0] == 24  # something else went first unless nothing else was sampled


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [16, 32])
@pytest.mark.parametrize("seed", range(8))
def test_eos_fill_leaves_no_step_to_empty_blocks(ends_early: EndsEarly, fraction: float, steps: int, seed: int) -> None:
    """Blocks that a fill has emptied are skipped; whatever is not run is booked."""
    sampling = Sampling(eos_fill=True)
    request = job(
        ends_early,
        preset="handoff",
        fraction=fraction,
        length=16,
        steps=steps,
        block_length=4,
        seed=seed,
        sampling=sampling,
    )
    engine = Engine(ends_early)
    handle = engine.submit(request)
    while engine.step():
        pass
    outcome = handle.result()
    after = False
    for stats in outcome.trace.steps:
        assert stats.masked > 0 or not after
        after |= bool(stats.filled)
    assert outcome.ledger.total + outcome.ledger.skipped_by_eos == request.planned_rows(outcome.handoff_step)


def test_an_adaptive_tail_books_what_the_fill_skipped(ends_early: EndsEarly) -> None:
    booked = 0
    for seed in range(12):
        request = job(
            ends_early,
            preset="base",
            length=32,
            seed=seed,
            sampling=Sampling(eos_fill=True),
            policy={"tail_width": 8, "tail_threshold": 0.999},
        )
        engine = Engine(ends_early)
        handle = engine.submit(request)
        while engine.step():
            pass
        outcome = handle.result()
        if any(stats.filled for stats in outcome.trace.steps):
            assert outcome.ledger.skipped_by_eos > 0
            booked += 1
    assert booked
