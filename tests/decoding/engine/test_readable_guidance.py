"""Readable guidance (`plausibility`, order `conditional`): batches, ledgers, replay, handoff, repair."""

from __future__ import annotations

import pytest

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.runner import Runner
from decoding.gates.builtin import FractionGate
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.gate import GateSettings
from decoding.request.job import Job
from tests.decoding.tiny import job

READABLE = {"order": "conditional", "plausibility": 0.3}
SETTINGS = [
    {},
    {"plausibility": 0.3},
    {"order": "conditional"},
    READABLE,
    {**READABLE, "guidance_scale": 4.0, "guided_width": 3},
    {**READABLE, "plausibility": 0.9},
]


def request(model: MiniModel, policy: dict[str, object], *, seed: int = 0, preset: str = "full_cfg") -> Job:
    if preset == "handoff":
        policy = {**policy, "gate": GateSettings("fraction", fraction=0.5)}
        return job(model, preset=preset, gate=FractionGate(0.5), length=12, policy=policy, record="stats", seed=seed)
    return job(model, preset=preset, length=12, policy=policy, record="stats", seed=seed)


def run(model: MiniModel, *jobs: Job) -> list[DecodingResult]:
    with Engine(model, runner=Runner(model, invariant=True)) as engine:
        handles = [engine.submit(one) for one in jobs]
        outcomes = [handle.result(600) for handle in handles]
        assert sum(outcome.ledger.total for outcome in outcomes) == engine.runner.counts.total
    return outcomes


def test_texts_do_not_depend_on_what_shares_the_batch(model: MiniModel) -> None:
    jobs = [request(model, policy, seed=seed) for seed, policy in enumerate(SETTINGS)]
    jobs += [request(model, policy, seed=seed, preset="handoff") for seed, policy in enumerate(SETTINGS[:4])]
    together = run(model, *jobs)
    for one, outcome in zip(jobs, together, strict=True):
        alone = run(model, one)[0]
        assert alone.tokens == outcome.tokens
        assert alone.trace.steps == outcome.trace.steps


@pytest.mark.parametrize("policy", SETTINGS[:4])
def test_the_ledger_is_that_of_plain_guidance(model: MiniModel, policy: dict[str, object]) -> None:
    assert run(model, request(model, policy))[0].ledger.total == 24
    handed = run(model, request(model, policy, preset="handoff"))[0]
    assert (handed.handoff_step, handed.ledger.total) == (6, 18)


def test_each_rule_changes_what_is_decoded(model: MiniModel) -> None:
    tokens = [run(model, request(model, policy))[0].tokens for policy in SETTINGS[:4]]
    assert len(set(map(tuple, tokens))) == 4


def test_base_steps_are_those_of_plain_decoding(model: MiniModel) -> None:
    """After a handoff at step 0 nothing of either rule is left."""
    gate = GateSettings("fraction", fraction=0.0)
    texts = [
        run(model, job(model, preset="handoff", gate=FractionGate(0.0), length=12, policy={"gate": gate, **policy}))[0]
        for policy in ({}, READABLE)
    ]
    assert texts[0].tokens == texts[1].tokens
