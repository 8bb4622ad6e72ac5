"""What shares a batch never changes a text, and the rows that the runner ran are all on some ledger."""

from __future__ import annotations

import random
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.records.ledger import BRANCHES, PURPOSES, Ledger
from decoding.request.canvas import CanvasState
from decoding.request.job import Job
from tests.decoding.random_jobs import MODEL, finish, jobs
from tests.decoding.tiny import job


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
