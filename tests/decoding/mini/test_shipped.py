"""The shipped weights: what training teaches can be said when decoding."""

from __future__ import annotations

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.models.bert_mini.vocabulary import CAP, MARKERS, MASK, PAD, UNK, UPPER
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job
from decoding.sampling.noise import NoiseKey
from tests.shipped import mini


def test_case_markers_may_be_written_and_nothing_else_that_is_special() -> None:
    model = mini()
    names = model.codec.pieces(list(model.spec.suppressed_ids))
    assert set(names) == {PAD, UNK, MASK, *MARKERS} - {CAP, UPPER}


def test_the_model_writes_capitals_when_asked() -> None:
    """About four texts in five do; fewer than three of eight has a probability of one in a thousand."""
    model = mini()
    constraint = parse({"type": "capital_frequency", "relation": "at_least", "count": 2})
    prompt = tuple(model.codec.encode_prompt(f"Write a sentence about a dog. {constraint.instruction()}"))
    jobs = [Job(prompt, 16, 16, resolve_policy("full_cfg", {}), NoiseKey(seed)) for seed in range(8)]
    with Engine(model) as engine:
        outcomes = [handle.result(600) for handle in engine.submit_all(jobs)]
    texts = [model.codec.decode(list(outcome.content)) for outcome in outcomes]
    assert sum(constraint.evaluate(text).satisfied for text in texts) >= 3
