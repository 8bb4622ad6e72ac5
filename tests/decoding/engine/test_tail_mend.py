"""Mending a finished tail: its rows, its trace, and that it depends on nothing but its request."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from decoding.engine.engine import Engine
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.repair import Repair
from decoding.records.ledger import Purpose
from decoding.request.job import Job, Sampling
from decoding.request.row_estimates import most_rows
from decoding.request.template import Template
from decoding.sampling.stability import NO_TAIL
from decoding.sampling.tail_rule import TAIL_RULES
from gate_models.offline.runs.trace_codec import decode_trace, encode_trace
from tests.decoding.engine.test_tail_rules import LENGTH, request, resumed, run
from tests.decoding.repair.repairing import NEVER
from tests.decoding.tiny import job

PASSES = 3


def mended(model: MiniModel, rule: str = "top_k", **fields: object) -> Job:
    return request(model, rule, tail_mend=PASSES, **fields)


def test_mended_texts_do_not_depend_on_what_shares_the_batch(model: MiniModel) -> None:
    jobs = [mended(model, rule, seed=seed) for rule in TAIL_RULES for seed in range(2)]
    for one, outcome in zip(jobs, run(model, *jobs), strict=True):
        assert run(model, one)[0].tokens == outcome.tokens


@pytest.mark.parametrize("rule", TAIL_RULES)
def test_mending_costs_a_row_a_pass_and_changes_the_tail_alone(model: MiniModel, rule: str) -> None:
    """The same run up to its last mask; then every position that the tail wrote is looked at once."""
    one = mended(model, rule, seed=3)
    plain, outcome = run(model, replace(one, policy=replace(one.policy, tail_mend=None)), one)
    steps = outcome.trace.steps
    passes = [stats for stats in steps if stats.mending]
    first = [replace(stats, tail=NO_TAIL) for stats in steps[:-PASSES]]
    assert first == [replace(stats, tail=NO_TAIL) for stats in plain.trace.steps]
    assert len(passes) == PASSES == outcome.ledger.of(purpose="repair") == outcome.ledger.of("conditional", "repair")
    assert outcome.ledger.total == plain.ledger.total + PASSES
    tail = {p for stats in plain.trace.steps if stats.phase == "base" for p in stats.positions}
    within = {p for p in tail if p <= len(plain.content)}
    assert within <= {p for stats in passes for p in stats.positions} <= tail
    assert all(outcome.tokens[p] == plain.tokens[p] for p in range(LENGTH) if p not in tail)
    assert tuple(outcome.trace.prefix(len(steps), model.spec.mask_id)) == outcome.tokens
    assert outcome.ledger.total <= most_rows(one)


def test_mending_takes_repeats_away(model: MiniModel) -> None:
    """Neighbours of one token, which this model writes often, are rarer afterwards."""
    jobs = [mended(model, seed=seed) for seed in range(12)]
    bare = [replace(one, policy=replace(one.policy, tail_mend=None)) for one in jobs]
    before, after = run(model, *bare), run(model, *jobs)

    def repeats(tokens: tuple[int, ...]) -> int:
        return sum(a == b and a not in model.spec.end_ids for a, b in itertools.pairwise(tokens))

    counts = [sum(repeats(outcome.content) for outcome in outcomes) for outcomes in (before, after)]
    assert counts[1] < counts[0]


@pytest.mark.parametrize("preset", ["base", "handoff"])
def test_a_run_goes_on_from_any_pass(model: MiniModel, preset: str) -> None:
    shape = {"preset": preset, "length": LENGTH, "policy": {"tail_width": 6, "tail_mend": PASSES}}
    one = job(model, **shape, seed=5) if preset == "base" else job(model, **shape, seed=5, fraction=0.25)
    outcome = run(model, one)[0]
    trace = decode_trace(encode_trace(outcome.trace))
    first = next(index for index, stats in enumerate(trace.steps) if stats.phase == "base")
    for after in range(first + (preset == "handoff"), len(trace.steps)):
        rest = resumed(one, replace(outcome, trace=trace), after, model.spec.mask_id)
        again = run(model, rest)[0]
        assert again.tokens == outcome.tokens
        assert [s.positions for s in again.trace.steps] == [s.positions for s in trace.steps[after:]]


@pytest.mark.parametrize("mode", ["prefix", "dual"])
def test_mending_looks_at_whole_rows_where_the_tail_reuses(model: MiniModel, mode: str) -> None:
    one = replace(mended(model, tail_reuse=mode, tail_refresh=4), record="commits")
    with Engine(model) as engine:  # reuse is refused in invariant mode
        outcome = engine.submit(one).result(60)
    assert outcome.approximate
    assert outcome.ledger.of(purpose="repair") == PASSES


@pytest.mark.parametrize("sampling", [Sampling(suppress_eos=True), Sampling(eos_fill=True), Sampling(temperature=0.0)])
def test_ends_of_text_are_handled_as_before(model: MiniModel, sampling: Sampling) -> None:
    outcome = run(model, *[replace(mended(model, seed=seed), sampling=sampling) for seed in range(3)])
    for one in outcome:
        assert model.spec.mask_id not in one.tokens
        assert not (sampling.suppress_eos and set(one.tokens) & set(model.spec.end_ids))
        assert one.ledger.skipped_by_eos >= 0


@pytest.mark.parametrize("purpose", ["rollout", "audit"])
def test_a_continuation_pays_for_its_own_purpose(model: MiniModel, purpose: Purpose) -> None:
    outcome = run(model, replace(mended(model), purpose=purpose))[0]
    assert outcome.ledger.of(purpose=purpose) == outcome.ledger.total


def test_a_mended_text_that_fails_is_repaired(model: MiniModel) -> None:
    """The pass and its mending first; rounds, which have no tail, are not mended; the trace tells it all."""
    for anchor in ("end", 0.5, 1.0):
        one = mended(model, repair=Repair(max_rounds=2, selector="random", anchor=anchor))
        outcome = run(model, replace(one, predicate=NEVER))[0]
        assert len(outcome.passes) == 3
        assert sum(stats.mending for stats in outcome.trace.steps) == PASSES
        assert outcome.trace.resumed[0].index > max(i for i, s in enumerate(outcome.trace.steps) if s.mending)


def test_what_stands_around_blanks_is_left_alone(model: MiniModel) -> None:
    canvas = Template.parse("a b [blank:6] c [blank:5] d").canvas(model.codec, model.spec)
    policy = {"tail_width": 4, "tail_mend": PASSES}
    shape = {"length": len(canvas.ids), "template": canvas, "sampling": Sampling(suppress_eos=True)}
    one = job(model, preset="base", policy=policy, seed=2, **shape)
    outcome = run(model, one)[0]
    fixed = [at for at in range(len(canvas.ids)) if at not in canvas.open]
    assert [outcome.tokens[at] for at in fixed] == [canvas.ids[at] for at in fixed]
    looked = {at for stats in outcome.trace.steps if stats.mending for at in stats.positions}
    assert looked <= set(canvas.open)
    assert outcome.ledger.of(purpose="repair") == PASSES
