"""Features are named, versioned, causal and finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.gates.protocol import GateView
from decoding.request.job import regime_of
from gate_models.features import vector as features
from gate_models.features.argmax_fill import TextReader
from gate_models.features.commit_order import commit_order_features
from tests.decoding.tiny import job, tiny_model

CONSTRAINT = {"type": "keywords", "keywords": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def run():
    model = tiny_model()
    engine = Engine(model)
    handle = engine.submit(job(model, record="fill", family="commongen-k3", constraint=CONSTRAINT))
    while engine.step():
        pass
    return model, handle.job, handle.result().trace.steps


def view(run, step):
    model, recorded, steps = run
    masked = recorded.gen_length - sum(len(stats.positions) for stats in steps[:step])
    return GateView(regime_of(recorded, model.spec.hash), step, 7, masked, tuple(steps[:step]), CONSTRAINT)


def test_groups_partition_the_names_and_the_schema_follows_them():
    assert sorted(features.NAMES) == sorted({name for names in features.GROUPS.values() for name in names})
    assert features.SCHEMA.startswith(f"{features.VERSION}-")
    columns = [set(features.columns([group])) for group in features.GROUPS]
    assert sum(map(len, columns)) == len(set.union(*columns)) == len(features.NAMES)
    with pytest.raises(KeyError):
        features.columns(["nothing"])


@pytest.mark.parametrize("step", [0, 1, 3, 11, 12])
def test_every_prefix_has_finite_features_of_the_declared_names(run, step):
    reader = TextReader.of(run[0].spec, run[0].codec)
    named = features.named(view(run, step), reader)
    assert tuple(named) == features.NAMES
    assert np.isfinite(features.vector(view(run, step), reader)).all()


def test_features_before_a_step_do_not_depend_on_that_step_or_later_ones(run):
    """Two runs that share a prefix have the same features at its end (contract 9)."""
    model, recorded, steps = run
    reader = TextReader.of(model.spec, model.codec)
    engine = Engine(model)
    other = engine.submit(replace(recorded, noise=replace(recorded.noise, seed=99)))
    while engine.step():
        pass
    grafted = [*steps[:5], *other.result().trace.steps[5:]]
    assert grafted[5:] != steps[5:]
    same = [features.vector(view((model, recorded, own), 5), reader) for own in (steps, grafted)]
    assert (same[0] == same[1]).all()
    later = [features.vector(view((model, recorded, own), 9), reader) for own in (steps, grafted)]
    assert (later[0] != later[1]).any()


def test_the_fill_is_judged_as_a_text(run):
    model, _, steps = run
    named = features.named(view(run, 12), TextReader.of(model.spec, model.codec))
    tokens = {p: t for stats in steps for p, t in zip(stats.positions, stats.tokens, strict=True)}
    ids = [tokens[p] for p in range(12)]
    ends = [i for i, token in enumerate(ids) if token in model.spec.end_ids]
    text = model.codec.decode(ids[: ends[0]] if ends else ids)
    own = [word for word in "abc" if word in text.split()]
    assert named["committed_satisfied"] == float(len(own) == 3)
    assert named["fill_score"] == named["committed_score"]


def test_commit_order_by_hand(run):
    *_, steps = run
    at = [replace(steps[0], positions=(p,), tokens=(5,), filled=()) for p in (0, 1, 2, 6)]
    computed = commit_order_features(at, 8)
    assert computed["order_rank_correlation"] == pytest.approx(1.0)
    assert computed["order_contiguity"] == pytest.approx(3 / 4)  # 0 is at the edge, 1 and 2 follow, 6 stands alone
    assert computed["order_runs"] == pytest.approx(2 / 4)
    assert computed["order_centre"] == pytest.approx((0 + 1 + 2 + 6) / 4 / 8)
    assert computed["order_span_filled"] == pytest.approx(4 / 7)
    assert computed["order_leftmost_open"] == pytest.approx(3 / 8)
    backwards = commit_order_features(at[::-1], 8)
    assert backwards["order_rank_correlation"] == pytest.approx(-1.0)
    assert backwards["order_spread"] == pytest.approx(computed["order_spread"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (CONSTRAINT, {"items": 3.0, "item_letters": 1.0, "low": 0.0}),
        ({"type": "length_ratio", "source": "ab cd", "low": 0.4, "high": 0.8}, {"low": 0.4, "high": 0.8, "items": 1.0}),
        (
            {"type": "letter_frequency", "letter": "t", "relation": "at_least", "count": 3},
            {"low": 3.0, "at_least": 1.0},
        ),
        ({"type": "collie_c06a", "min_words": 21, "max_chars": 7}, {"low": 21.0, "high": 7.0}),
        ({}, {"items": 0.0, "high": 0.0}),
    ],
)
def test_constraint_facts(spec, expected):
    facts = features.constraint_facts(parse(spec) if spec else None)
    assert {name: facts[name] for name in expected} == expected
