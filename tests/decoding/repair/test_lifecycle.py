"""Repair in a server's life: cancellation, deadlines, admission, budgets, and rows that add up whatever is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingError, Handle
from decoding.engine.runner import Runner
from decoding.engine.scheduler import QueueFullError, Scheduler
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.decoding_policy import PolicyError
from decoding.policy.presets import resolve_policy
from decoding.policy.repair import SELECTORS, Repair
from decoding.request.job import Attempt
from decoding.request.validation import JobError
from tests.decoding.repair.repairing import Broken, Letters, repaired
from tests.decoding.tiny import job


@pytest.mark.parametrize("when", ["first pass", "repair", "rollouts"])
def test_cancelling_frees_everything_and_the_ledger_holds(model: MiniModel, when: str) -> None:
    engine = Engine(model, runner=Runner(model, invariant=True))
    handle = engine.submit(repaired(model, Repair("committor", reopen=6, max_rounds=9, anchor=0.25)))
    beside = engine.submit(job(model, steps=60))

    def reached() -> bool:
        if when == "first pass":
            return handle.state.step > 2
        return bool(handle.rollouts) if when == "rollouts" else handle.state.job.purpose == "repair"

    while not reached():
        assert engine.step()
    engine.step()
    handle.cancel()
    assert engine.scheduler.queued == 1
    while engine.step():
        pass
    with pytest.raises(DecodingError, match="cancelled"):
        handle.result()
    assert handle.state.ledger.total + beside.result().ledger.total == engine.runner.counts.total


def test_a_deadline_ends_a_repair(model: MiniModel) -> None:
    engine = Engine(model, runner=Runner(model))
    handle = engine.submit(repaired(model, Repair("restart", max_rounds=60), deadline=float("inf")))
    while handle.state.job.purpose != "repair":
        engine.step()
    handle.job = replace(handle.job, deadline=-1.0)
    while engine.step():
        pass
    assert handle.error is not None
    assert handle.error.reason == "deadline"


def test_admission_counts_the_worst_case(model: MiniModel) -> None:
    engine = Engine(model, scheduler=Scheduler(max_queued_rows=100))
    engine.submit(repaired(model, Repair("random", reopen=12, max_rounds=2)))  # 24 + 2 * 24
    with pytest.raises(QueueFullError):
        engine.submit(repaired(model, Repair("random", reopen=3, max_rounds=1)))  # 24 + 6
    engine.submit(job(model))


def test_a_predicate_that_fails_ends_its_request_alone(engine: Engine, model: MiniModel) -> None:
    broken, healthy = engine.submit_all([repaired(model, predicate=Broken("a", 1)), repaired(model)])
    with pytest.raises(DecodingError, match="could not be judged"):
        broken.result(600)
    assert healthy.result(600).passes


def test_repair_needs_a_predicate_and_a_policy_that_can_be(engine: Engine, model: MiniModel) -> None:
    with pytest.raises(JobError) as error:
        engine.submit(repaired(model, predicate=None))
    assert error.value.param == "policy.repair"
    for fields, param in (
        ({"selector": "luck"}, "repair.selector"),
        ({"reopen": 0}, "repair.reopen"),
        ({"max_rounds": -1}, "repair.max_rounds"),
        ({"anchor": 1.5}, "repair.anchor"),
        ({"anchor": True}, "repair.anchor"),
        ({"selector": "random", "rollouts": 3}, "repair.rollouts"),
    ):
        with pytest.raises(PolicyError) as wrong:
            Repair(**fields)
        assert wrong.value.param == param
    wide = Attempt(resolve_policy("base", {"tail_width": 13}))
    with pytest.raises(JobError, match="gen_length") as error:
        engine.submit(replace(job(model), attempts=(wide,), predicate=Letters("a", 1)))
    assert error.value.param == "policy.tail_width"
    with pytest.raises(PolicyError, match="gen_length"):
        resolve_policy("reopen_repair", {"repair": Repair(reopen=9)}, gen_length=8)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_add_up_whatever_is_asked(model: MiniModel, data: st.DataObject) -> None:
    engine = Engine(model, runner=Runner(model))
    handles: list[Handle] = []
    for seed in range(data.draw(st.integers(1, 4))):
        selector: Any = data.draw(st.sampled_from(SELECTORS))
        length = data.draw(st.sampled_from([2, 8, 12]))
        repair = Repair(
            selector,
            reopen=data.draw(st.integers(1, 3)),
            max_rounds=data.draw(st.integers(0, 3)),
            anchor=data.draw(st.sampled_from(["end", 0.0, 0.4, 1.0])),
        )
        budget = data.draw(st.sampled_from([None, 60]))
        preset = data.draw(st.sampled_from(["base", "full_cfg", "handoff"]))
        handles.append(
            engine.submit(
                repaired(
                    model,
                    repair,
                    Letters("b", 2),
                    preset=preset,
                    seed=seed,
                    length=length,
                    steps=data.draw(st.sampled_from([length, 2, 16])),
                    policy={"budget_rows": budget},
                    fraction=0.3 if preset == "handoff" else None,
                )
            )
        )
    cancelled = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(0, 40)) if cancelled else 0):
        engine.step()
    if cancelled:
        handles[0].cancel()
    while engine.step():
        pass
    assert sum(handle.state.ledger.total for handle in handles) == engine.runner.counts.total
    assert engine.scheduler.idle
    for handle in handles[cancelled:]:
        outcome = handle.result()
        assert model.spec.mask_id not in outcome.tokens
        assert outcome.ledger.total <= handle.estimated_rows
