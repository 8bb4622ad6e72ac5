"""Tail rules and the tail's own temperature in the engine: batches, ledgers, ends of runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.checks import PolicyError
from decoding.request.job import Job, Sampling
from decoding.request.validation import JobError, check_job
from decoding.sampling.block_schedule import TAIL_SCHEDULES
from decoding.sampling.stability import NO_TAIL
from decoding.sampling.tail_rule import ATTENDING, TAIL_RULES
from gate_models.offline.runs.trace_codec import decode_trace, encode_trace
from tests.decoding.tiny import job, steady_model

LENGTH = 24


def request(model: MiniModel, rule: str, *, seed: int = 0, **policy: object) -> Job:
    given = {"tail_width": 6, "tail_rule": rule, **policy}
    return job(model, preset="handoff", fraction=0.25, length=LENGTH, policy=given, record="stats", seed=seed)


def run(model: MiniModel, *jobs: Job) -> list[DecodingResult]:
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        outcomes = [handle.result(60) for handle in [engine.submit(one) for one in jobs]]
        assert sum(outcome.ledger.total for outcome in outcomes) == engine.runner.counts.total
    return outcomes


def resumed(made: Job, outcome: DecodingResult, after: int, mask: int) -> Job:
    """`made` from the tail's state after the first `after` recorded steps."""
    trace = outcome.trace
    return replace(
        made,
        start=tuple(trace.prefix(after, mask).tolist()),
        start_step=trace.steps[after].step,
        start_place=trace.place(after),
        start_tail=trace.tail(after),
        handed_off=True,
    )


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


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_tail_goes_on_from_a_recorded_step_as_it_went_on_itself(model: MiniModel, after: int) -> None:
    """Canvas, schedule and what the tail remembers are all there is to know; a record on disk keeps them."""
    one = job(steady_model(), preset="base", length=LENGTH, policy={"tail_width": 6, "tail_rule": "stable"})
    whole = run(steady_model(), one)[0]
    assert max(len(stats.positions) for stats in whole.trace.steps) > 1
    trace, mask = decode_trace(encode_trace(whole.trace)), model.spec.mask_id
    assert trace.steps[after].tail == whole.trace.steps[after].tail
    assert trace.steps[after].tail.seen
    rest = resumed(one, replace(whole, trace=trace), after, mask)
    assert run(steady_model(), rest)[0].trace.steps == whole.trace.steps[after:]
    forgetful = run(steady_model(), replace(rest, start_tail=NO_TAIL))[0]
    assert len(forgetful.trace.steps[0].positions) == 1
    assert len(forgetful.trace.steps[1].positions) == 1


def test_what_a_tail_remembers_does_not_depend_on_what_is_recorded() -> None:
    """A trace of every position's statistics scores positions behind the block; the rule must not see them."""
    given = {"tail_width": 4, "tail_rule": "stable"}
    few, every = (
        job(steady_model(), preset="base", length=LENGTH, block_length=8, policy=given, record=level)
        for level in ("commits", "stats")
    )
    one, other = run(steady_model(), few, every)
    assert one.tokens == other.tokens
    assert [stats.tail for stats in one.trace.steps] == [stats.tail for stats in other.trace.steps]


def test_a_handoff_begins_with_an_empty_memory(model: MiniModel) -> None:
    outcome = run(model, request(model, "stable"))[0]
    first = next(stats for stats in outcome.trace.steps if stats.phase == "base")
    assert first.tail == NO_TAIL
    assert all(stats.tail == NO_TAIL for stats in outcome.trace.steps if stats.phase == "guided")


@pytest.mark.parametrize("mode", ["prefix", "dual"])
@pytest.mark.parametrize("rule", sorted(TAIL_RULES.keys() - ATTENDING))
def test_every_other_rule_composes_with_reuse(model: MiniModel, rule: str, mode: str) -> None:
    """Refreshed at every step, reuse is exact; else it ends in time and costs fewer tokens."""
    shape: dict[str, Any] = {"preset": "base", "length": LENGTH, "block_length": 8}
    plain, exact, reused = (
        job(model, **shape, policy={"tail_width": 4, "tail_rule": rule, **more})
        for more in ({}, {"tail_reuse": mode, "tail_refresh": 1}, {"tail_reuse": mode})
    )
    with Engine(model) as engine:
        one, same, fast = (engine.submit(each).result(60) for each in (plain, exact, reused))
    assert same.tokens == one.tokens
    assert same.ledger.rows == one.ledger.rows
    assert fast.approximate
    assert model.spec.mask_id not in fast.tokens
    assert fast.ledger.tokens / fast.ledger.total < one.ledger.tokens / one.ledger.total


@pytest.mark.parametrize("rule", sorted(ATTENDING))
def test_a_rule_that_looks_at_attention_needs_it(model: MiniModel, rule: str) -> None:
    """Refused in one sentence by models that tell none, and with reuse, whose rows are not whole."""
    asked = request(model, rule)
    with pytest.raises(JobError, match="looks at the model's attention, which model tiny does not give") as refused:
        check_job(asked, replace(model.spec, name="tiny", gives_attention=False))
    assert refused.value.param == "policy.tail_rule"
    with pytest.raises(PolicyError, match=rule) as clash:
        request(model, rule, tail_reuse="dual")
    assert clash.value.param == "tail_reuse"


def test_looking_at_attention_changes_no_other_text(model: MiniModel) -> None:
    """What shares a batch with such a row gets the same bits, and the row's own prediction stays as it was."""
    others = [request(model, "top_k", seed=seed) for seed in range(3)]
    alone = run(model, *others)
    beside = run(model, *others, *[request(model, "conflict", seed=seed) for seed in range(3)])
    assert [one.tokens for one in alone] == [one.tokens for one in beside[:3]]


@pytest.mark.parametrize("blocks", [None, 8])
@pytest.mark.parametrize("preset", ["base", "handoff"])
def test_counts_grow_at_equal_rows(model: MiniModel, preset: str, blocks: int | None) -> None:
    """The same ledger as of a constant width, planned as it comes, and each step commits what a resumed run would."""
    shape: dict[str, Any] = {"preset": preset, "length": LENGTH, "block_length": blocks}
    if preset == "handoff":
        shape["fraction"] = 0.25
    made = [job(model, **shape, policy={"tail_width": 4, "tail_schedule": name}) for name in TAIL_SCHEDULES]
    constant, growing = run(model, *made)
    assert growing.ledger.rows == constant.ledger.rows
    assert growing.ledger.total == made[1].planned_rows()
    base = [stats for stats in growing.trace.steps if stats.phase == "base"]
    counts = [len(stats.positions) for stats in base]
    assert counts != [len(stats.positions) for stats in constant.trace.steps if stats.phase == "base"]
    if blocks is None:
        assert counts == sorted(counts)
    for index in range(1, len(base)):
        after = len(growing.trace.steps) - len(base) + index
        rest = resumed(made[1], growing, after, model.spec.mask_id)
        assert run(model, rest)[0].trace.steps == growing.trace.steps[after:]


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
