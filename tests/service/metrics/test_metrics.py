"""Counting at the edges: an answer that comes too late, a sample that goes on after its request has ended."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from prometheus_client.parser import text_string_to_metric_families

from decoding.engine.engine import Engine
from decoding.gates.builtin import BuiltinGates
from service.config.settings import Settings
from service.generation import replies
from service.generation.generation import Bridge, Generation
from service.generation.prepare import prepare
from service.metrics import definitions as define
from service.metrics.recorder import Metrics
from service.schemas.generate import GenerateRequest
from tests.decoding.tiny import tiny_model

BODY = {"prompt": "a b c", "gen_length": 8, "steps": 8, "seed": 1, "n": 2, "policy": {"preset": "full_cfg"}}
ROWS = 2 * 8
"""Of one of its samples."""


def value(metrics, name, **labels):
    """Sum of a metric's samples over the labels not named."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"astargate_{name}" and labels.items() <= sample.labels.items()
    )


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def admit(metrics, model, loop, body=BODY):
    """An engine that is stepped by hand, and an admitted request of two samples on it."""
    engine = Engine(model, observer=metrics)
    prepared = prepare(GenerateRequest(**body), model, BuiltinGates(), Settings())
    handles = engine.submit_all(prepared.jobs)
    metrics.admitted(prepared)
    return engine, Generation(prepared, handles, Bridge(loop), every_step=False)


def run(engine):
    while engine.step():
        pass


def test_an_answer_after_the_end_is_abandoned_not_spent(metrics, model, loop):
    engine, generation = admit(metrics, model, loop)
    run(engine)
    first, second = (
        replies.sample(generation.prepared, index, handle.result(), model)
        for index, handle in enumerate(generation.handles)
    )
    metrics.judged(generation.prepared, [first])
    metrics.judged(generation.prepared, [first])
    metrics.ended("/generate", generation, "cancelled")
    metrics.judged(generation.prepared, [second])
    assert value(metrics, "forward_rows_total") == 2 * ROWS
    assert value(metrics, "forward_rows_spent_total", policy="full_cfg", family="other") == ROWS
    assert value(metrics, "forward_rows_full_cfg_equivalent_total") == ROWS
    assert value(metrics, "forward_rows_abandoned_total") == ROWS
    assert value(metrics, "gate_decisions_total", decision="full_cfg") == 1
    assert value(metrics, "requests_total", finish_reason="cancelled") == 1


def test_a_sample_that_finishes_after_its_request_has_ended_is_abandoned(metrics, model, loop):
    engine, generation = admit(metrics, model, loop)
    engine.step()
    metrics.ended("/generate", generation, "cancelled")
    assert value(metrics, "forward_rows_abandoned_total") == 2 * 2
    run(engine)
    assert value(metrics, "forward_rows_abandoned_total") == value(metrics, "forward_rows_total") == 2 * ROWS
    assert value(metrics, "forward_rows_spent_total") == 0


def test_cancelled_samples_are_abandoned_once(metrics, model, loop):
    engine, generation = admit(metrics, model, loop)
    engine.step()
    with generation:
        metrics.ended("/generate", generation, "cancelled")
    run(engine)
    assert value(metrics, "forward_rows_abandoned_total") == value(metrics, "forward_rows_total") == 2 * 2


def test_repair_rounds_of_a_cancelled_request_are_counted(metrics, model, loop):
    repair = {"selector": "commit_confidence", "max_rounds": 9}
    letters = {"type": "letter_frequency", "letter": "m", "relation": "at_least", "count": 9}
    body = {**BODY, "n": 1, "constraint": letters}
    policy = {"preset": "reopen_repair", "gate": {"source": "never"}, "repair": repair}
    engine, generation = admit(metrics, model, loop, {**body, "policy": policy})
    (handle,) = generation.handles
    while len(handle.repair_loop.passes) < 3:  # a text and two rounds: eight tokens have no nine letters
        assert engine.step()
    with generation:
        metrics.ended("/generate", generation, "cancelled")
    run(engine)
    assert value(metrics, "repair_rounds_total", selector="commit_confidence", outcome="failed") == 2
    assert value(metrics, "repair_rounds_total") == 2


def test_rows_of_background_work_are_neither(metrics, model, loop):
    engine, generation = admit(metrics, model, loop)
    with generation:
        metrics.ended("/generate", generation, "cancelled")
    run(engine)
    job = generation.prepared.job
    for purpose in sorted(define.BACKGROUND):
        handle = engine.submit(type(job)(**{name: getattr(job, name) for name in job.__slots__} | {"purpose": purpose}))
        engine.step()
        handle.cancel()
    assert value(metrics, "forward_rows_total") == 2 * len(define.BACKGROUND)
    assert value(metrics, "forward_rows_abandoned_total") == 0


def test_counters_of_known_labels_start_at_zero(metrics):
    text = metrics.exposition().decode()
    assert 'astargate_forward_rows_spent_total{family="other",policy="handoff"} 0.0' in text
    for metric in define.METRICS:
        wanted = set(product(*metric.labels.values())) if metric.kind == "counter" and metric.labels else set()
        assert set(metric.series()) == wanted
    assert len(text.splitlines()) < 3000


def test_rollouts_and_audits_are_counted(metrics):
    metrics.rolled_out(8)
    metrics.audited("ccg-length", handoff=True, full=False)
    metrics.audited("a client's word", handoff=False, full=False)
    metrics.audit_missed()
    assert value(metrics, "committor_rollouts_total") == 8
    assert value(metrics, "audit_pairs_total", family="ccg-length", outcome="ok_fail") == 1
    assert value(metrics, "audit_pairs_total", family="other", outcome="fail_fail") == 1
    assert value(metrics, "audit_dropped_total") == 1


def test_a_family_has_one_state(metrics):
    metrics.gate_states({"ccg-length": "uncertified", "commongen-k3": "active"})
    metrics.gate_states({"ccg-length": "suspended"})
    states = {
        state: value(metrics, "gate_state", family="ccg-length", state=state)
        for state in ("active", "uncertified", "suspended")
    }
    assert states == {"active": 0, "uncertified": 0, "suspended": 1}
    assert value(metrics, "gate_state", family="commongen-k3", state="active") == 1
