"""Tail rules and the tail's own temperature in the engine: batches, ledgers, ends of runs."""

from __future__ import annotations

import pytest

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from decoding.request.job import Job, Sampling
from decoding.sampling.tail_rule import TAIL_RULES
from tests.decoding.tiny import job

LENGTH = 24


def request(model: MiniModel, rule: str, *, seed: int = 0, **policy: object) -> Job:
    given = {"tail_width": 6, "tail_rule": rule, **policy}
    return job(model, preset="handoff", fraction=0.25, length=LENGTH, policy=given, record="stats", seed=seed)


def run(model: MiniModel, *jobs: Job) -> list[DecodingResult]:
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        outcomes = [handle.result(60) for handle in [engine.submit(one) for one in jobs]]
        assert sum(outcome.ledger.total for outcome in outcomes) == engine.runner.counts.total
    return outcomes


def test_texts_do_not_depend_on_what_shares_the_batch(model: MiniModel) -> None:
    jobs = [request(model, rule, seed=seed) for rule in TAIL_RULES for seed in range(2)]
    jobs += [
        job(model, preset="base", length=LENGTH, policy={"tail_width": 4, "tail_rule": rule}) for rule in TAIL_RULES
    ]
    for one, outcome in zip(jobs, run(model, *jobs), strict=True):
        assert run(model, one)[0].tokens == outcome.tokens


@pytest.mark.parametrize("rule", TAIL_RULES)
def test_rows_are_two_a_guided_step_and_one_a_base_step(model: MiniModel, rule: str) -> None:
    outcome = run(model, request(model, rule))[0]
    steps = outcome.trace.steps
    assert outcome.ledger.total == sum(2 if stats.phase == "guided" else 1 for stats in steps)
    base = [len(stats.positions) for stats in steps if stats.phase == "base"]
    assert max(base) <= 6
    assert min(base) >= 1
    assert model.spec.mask_id not in outcome.tokens
    assert outcome.ledger.total <= request(model, rule).first_pass_rows


@pytest.mark.parametrize("rule", TAIL_RULES)
def test_few_steps_still_end_in_time(model: MiniModel, rule: str) -> None:
    """A rule may hold back; the schedule's share is committed all the same."""
    one = job(model, preset="base", length=LENGTH, steps=4, policy={"tail_width": 8, "tail_rule": rule})
    outcome = run(model, one)[0]
    assert outcome.ledger.total <= 4
    assert model.spec.mask_id not in outcome.tokens


def test_a_tail_without_temperature_is_greedy(model: MiniModel) -> None:
    """Guided steps explore, base steps settle: two seeds differ only by what was guided."""
    warm = Sampling(temperature=1.5)
    given = {"tail_temperature": 0.0}
    outcome = run(
        model, job(model, preset="handoff", fraction=0.5, length=12, policy=given, sampling=warm, record="fill", seed=3)
    )[0]
    plain = run(model, job(model, preset="handoff", fraction=0.5, length=12, sampling=warm, record="fill", seed=3))[0]
    assert outcome.trace.steps[:6] == plain.trace.steps[:6]
    for stats in outcome.trace.steps[6:]:
        argmax = dict(zip(stats.argmax_positions, stats.argmax_tokens, strict=True))
        assert [argmax[at] for at in stats.positions] == list(stats.tokens)
    assert outcome.tokens != plain.tokens
