"""Verified repair and attempts on a tiny random model: budgets, ledgers, traces, and what stays untouched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from decoding.engine.engine import Engine
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.presets import resolve_policy
from decoding.policy.repair import ROLLOUT_SELECTORS, SELECTORS, Repair
from decoding.records.events import ReopenEvent
from decoding.request.job import Attempt, Job, Sampling
from decoding.request.row_estimates import most_rows
from decoding.request.validation import JobError
from decoding.sampling.block_schedule import step_at
from tests.decoding.repair.repairing import ALWAYS, NEVER, Letters, decode, hard_predicate, repaired
from tests.decoding.tiny import job


@pytest.mark.parametrize("preset", ["full_cfg", "handoff", "base"])
@pytest.mark.parametrize("repair", [Repair(max_rounds=0), Repair("random", reopen=5)], ids=["no rounds", "satisfied"])
def test_a_run_that_is_not_repaired_is_bit_equal(engine: Engine, model: MiniModel, preset: str, repair: Repair) -> None:
    predicate = NEVER if repair.max_rounds == 0 else ALWAYS
    fraction = 0.3 if preset == "handoff" else None
    plain = job(model, preset=preset, fraction=fraction, record="stats")
    judged = replace(plain, policy=replace(plain.policy, repair=repair), predicate=predicate)
    first, second = decode(engine, plain, judged)
    assert first.tokens == second.tokens
    assert first.trace == second.trace
    assert first.ledger == second.ledger
    assert len(second.passes) == 1
    assert second.kept is second.passes[0]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("anchor", ["end", 0.0, 0.5])
@pytest.mark.parametrize("block", [None, 4])
def test_every_reopened_position_is_committed_again(
    engine: Engine, model: MiniModel, selector: Any, anchor: Any, block: int | None
) -> None:
    repair = Repair(selector, max_rounds=2, anchor=anchor, rollouts=2 if selector in ROLLOUT_SELECTORS else None)
    asked = repaired(model, repair, preset="handoff", fraction=0.25, block_length=block)
    handle = engine.submit(asked)
    outcome = handle.result(600)
    assert [attempt.round for attempt in outcome.passes] == [0, 1, 2]
    for attempt in outcome.passes:
        assert model.spec.mask_id not in attempt.tokens
    for resumption, attempt in zip(outcome.trace.resumed, outcome.passes[1:], strict=True):
        masked = {i for i, token in enumerate(resumption.canvas) if token == model.spec.mask_id}
        assert set(attempt.reopened) <= masked
        committed = [p for stats in attempt.state.trace.steps for p in stats.positions]
        assert sorted(committed) == sorted(masked)
        assert {stats.round for stats in attempt.state.trace.steps} == {attempt.round}
        assert {stats.phase for stats in attempt.state.trace.steps} == {"guided"}
    assert outcome.ledger.total <= most_rows(asked) == handle.estimated_rows


def test_rounds_at_the_end_cost_two_rows_a_reopened_position(engine: Engine, model: MiniModel) -> None:
    (outcome,) = decode(engine, repaired(model, Repair("random", reopen=4, max_rounds=3)))
    assert [len(attempt.reopened) for attempt in outcome.passes] == [0, 4, 4, 4]
    assert outcome.ledger.of(purpose="generate") == 24
    assert outcome.ledger.of(purpose="repair") == outcome.ledger.total - 24 == 3 * 2 * 4
    assert most_rows(outcome.job) == 48


@pytest.mark.parametrize("selector", ROLLOUT_SELECTORS)
def test_rollouts_are_charged_to_the_request(model: MiniModel, selector: Any) -> None:
    engine = Engine(model, runner=Runner(model, invariant=True))
    handle = engine.submit(repaired(model, Repair(selector, reopen=2, max_rounds=1, rollouts=3, anchor=0.5)))
    while engine.step():
        assert handle.rows == 0 or not handle.parked
    ledger = handle.result().ledger
    steps = 12 - step_at(0.5, 12)
    masks = sum(token == model.spec.mask_id for token in handle.result().trace.resumed[0].canvas)
    assert masks == steps + 2
    assert ledger.of(purpose="rollout") == 3 * steps * (12 - steps)
    assert ledger.of(purpose="repair") == 2 * steps
    assert ledger.total == engine.runner.counts.total
    assert engine.scheduler.queued == engine.scheduler.queued_rows == 0


def test_the_best_text_is_kept_and_success_ends_it(engine: Engine, model: MiniModel) -> None:
    predicate = hard_predicate(engine, model)
    outcomes = decode(
        engine,
        *(repaired(model, Repair("random", reopen=6, max_rounds=8), predicate, seed=seed) for seed in range(40)),
    )
    ranks = [[attempt.rank for attempt in outcome.passes] for outcome in outcomes]
    assert all(
        outcome.kept is not None and outcome.kept.rank == max(r) for outcome, r in zip(outcomes, ranks, strict=True)
    )
    assert all(outcome.tokens == outcome.kept.tokens for outcome in outcomes if outcome.kept)
    assert not any(satisfied for rank in ranks for satisfied, _ in rank[:-1])
    recovered = [rank for rank in ranks if len(rank) > 1 and rank[-1][0]]
    assert recovered, "no seed shows a recovery"
    assert any(len(rank) == 1 for rank in ranks), "no first text succeeds"


def test_rounds_draw_new_noise_and_do_not_repeat_positions(engine: Engine, model: MiniModel) -> None:
    (outcome,) = decode(engine, repaired(model, Repair("commit_confidence", max_rounds=3), Letters("é", 1)))
    best = outcome.passes[0]
    same = [attempt for attempt in outcome.passes[1:] if attempt.rank <= best.rank]
    assert len(same) == 3
    assert len({position for attempt in same for position in attempt.reopened}) == 9
    everything = decode(engine, repaired(model, Repair("restart", max_rounds=3)))[0].passes
    assert len({attempt.state.job.noise for attempt in everything}) == 4
    assert len({attempt.tokens for attempt in everything}) > 1


def test_confidence_survives_where_nothing_was_decoded_again(engine: Engine, model: MiniModel) -> None:
    (outcome,) = decode(engine, repaired(model, Repair("commit_confidence", reopen=3, max_rounds=1)))
    first, second = outcome.passes
    worst = sorted(sorted(range(12), key=lambda i: float(first.confidence[i]))[:3])
    kept = [i for i in range(12) if i not in second.reopened]
    assert list(second.reopened) == worst or len(outcome.content) < 12
    assert all(first.tokens[i] == second.tokens[i] and first.confidence[i] == second.confidence[i] for i in kept)


def test_budget_bounds_everything_after_the_first_pass(engine: Engine, model: MiniModel) -> None:
    for budget, rounds in ((24, 0), (31, 0), (32, 1), (40, 2), (47, 2), (500, 5)):
        asked = repaired(model, Repair("random", reopen=4, max_rounds=5), policy={"budget_rows": budget})
        (outcome,) = decode(engine, asked)
        assert len(outcome.passes) == 1 + rounds
        assert outcome.ledger.total <= budget
        assert most_rows(asked) == min(budget, 24 + 5 * 8)
    with pytest.raises(JobError) as error:
        engine.submit(repaired(model, policy={"budget_rows": 23}))
    assert error.value.param == "policy.budget_rows"


def test_attempts_follow_each_other_with_noise_of_their_own(engine: Engine, model: MiniModel) -> None:
    base, full = (
        resolve_policy("base", {}),
        resolve_policy("full_cfg", {"repair": Repair("random", reopen=2, max_rounds=2)}),
    )
    attempts = (Attempt(base), Attempt(full), Attempt(full))
    asked = replace(job(model, preset="full_cfg"), attempts=attempts, predicate=NEVER)
    handle = engine.submit(asked)
    outcome = handle.result(600)
    assert [(decoded.attempt, decoded.round) for decoded in outcome.passes] == [
        (0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2),
    ]  # fmt: skip
    assert outcome.ledger.total == 12 + 2 * (24 + 2 * 4) == handle.estimated_rows
    (alone,) = decode(engine, job(model, preset="base"))
    assert outcome.passes[0].tokens == alone.tokens
    assert outcome.passes[1].tokens != outcome.passes[4].tokens
    trace = outcome.trace
    assert tuple(trace.prefix(len(trace.steps), model.spec.mask_id).tolist()) == outcome.passes[-1].tokens


def test_events_tell_of_every_reopening(engine: Engine, model: MiniModel) -> None:
    handle = engine.submit(repaired(model, Repair("random", reopen=3, max_rounds=2)))
    canvas = [model.spec.mask_id] * 12
    reopened = []
    for event in handle.stream():
        if isinstance(event, ReopenEvent):
            reopened.append(event)
            assert all(canvas[p] != model.spec.mask_id for p in event.positions)
            canvas = list(event.canvas)
        else:
            for position, token in zip(event.positions, event.tokens, strict=True):
                canvas[position] = token
    assert [(event.attempt, event.round) for event in reopened] == [(0, 1), (0, 2)]
    assert tuple(canvas) == handle.result().passes[-1].tokens


@pytest.mark.parametrize(
    ("repair", "most"),
    [
        (Repair("commit_confidence", reopen=4, max_rounds=20), 19),
        (Repair("restart", max_rounds=20), 1),
        (Repair("truncated_committor", reopen=12, max_rounds=20, rollouts=1), 19),
        (Repair("random", reopen=12, max_rounds=20, anchor=0.0), 1),
    ],
)
def test_at_temperature_zero_no_text_is_decoded_twice(
    engine: Engine, model: MiniModel, repair: Repair, most: int
) -> None:
    """Reopening the same positions of the same text again would give the same text: the attempt ends."""
    greedy = Sampling(temperature=0.0)
    (outcome,) = decode(engine, repaired(model, repair, sampling=greedy))
    attempts = outcome.passes[1:]
    assert 1 <= len(attempts) <= most, "the rounds run out of new canvases"
    assert len({resumption.canvas for resumption in outcome.trace.resumed}) == len(attempts)
    (drawn,) = decode(engine, repaired(model, repair))
    assert len(drawn.passes) == 21, "with noise every round is another"


def test_at_temperature_zero_a_repeated_attempt_is_left_out(engine: Engine, model: MiniModel) -> None:
    base, full = Attempt(resolve_policy("base", {})), Attempt(resolve_policy("full_cfg", {}))
    asked = replace(job(model, preset="full_cfg"), attempts=(base, full, full, base), predicate=NEVER)
    greedy = replace(asked, sampling=replace(asked.sampling, temperature=0.0))
    random = replace(greedy, attempts=(Attempt(resolve_policy("full_cfg", {"order": "random"})),) * 2)
    sampled, repeated, shuffled = decode(engine, asked, greedy, random)
    assert [len(outcome.passes) for outcome in (sampled, repeated, shuffled)] == [4, 2, 2]
    assert repeated.tokens in {attempt.tokens for attempt in repeated.passes}


def test_a_repair_does_not_depend_on_what_runs_beside_it(model: MiniModel) -> None:
    """In batch-invariant mode texts, passes, rows and traces are those of the request alone."""
    repairs = [Repair("constraint_aware"), Repair("random", anchor=0.4), Repair("committor", max_rounds=1, rollouts=2)]
    asked = [repaired(model, repair, Letters("é", 1), seed=seed) for seed, repair in enumerate(repairs)]
    asked.append(replace(asked[0], attempts=(Attempt(asked[0].policy),) * 2, policy=resolve_policy("auto", {})))

    def outcomes(jobs: list[Job], max_rows: int) -> list[Any]:
        engine = Engine(model, runner=Runner(model, invariant=True), scheduler=Scheduler(max_rows))
        handles = engine.submit_all(jobs)
        while engine.step():
            pass
        results = [handle.result() for handle in handles]
        return [(one.tokens, one.trace, one.ledger, [(p.text, p.rows) for p in one.passes]) for one in results]

    alone = [outcomes([one], 64)[0] for one in asked]
    assert any(len(passes) > 2 for *_, passes in alone)
    others = [job(model, seed=90 + index, length=8 + index) for index in range(3)]
    mixed = outcomes([others[0], *asked, *others[1:]], 8)
    assert mixed[1:5] == alone
