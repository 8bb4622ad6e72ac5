"""Contract 7 for learned gates: served inside their audited regime, never borrowed, else why and what is nearest."""

from __future__ import annotations

import dataclasses

import pytest

from decoding.engine.engine import Engine
from decoding.gates.builtin import FractionGate
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import regime_of
from decoding.sampling.block_schedule import step_at
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates
from gate_models.gates.learned import artifact
from gate_models.gates.learned.gates import PolicyGate, RawGate, ValueGate
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.sources import trained_sources
from tests.decoding.tiny import job, tiny_model
from tests.gate_models import synthetic_gates as gates

CONSTRAINT = {"type": "keywords", "keywords": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def resolver(model):
    held = gates.bundle(model.spec.hash)
    return LearnedGates([held], ConstantGates(()), TextReader.of(model.spec, model.codec))


@pytest.fixture
def regime(model):
    return gates.regime(model.spec.hash)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        (GateSettings("raw"), RawGate),
        (GateSettings("policy"), PolicyGate),
        (GateSettings("value", row_price=0.001), ValueGate),
        (GateSettings("risk", margin=0.12, confidence=0.9), ValueGate),
        (GateSettings("constant"), FractionGate),
    ],
)
def test_inside_its_regime_every_source_is_served(resolver, regime, setting, kind):
    gate = resolver.resolve(setting, regime).gate
    assert isinstance(gate, kind)
    assert (gate.source, gate.version) == (setting.source, "test0")
    assert resolver.resolve(setting, regime).gate is gate  # one call a step for all its requests


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guidance_scale", 1.0),
        ("steps", 32),
        ("gen_length", 24),
        ("tail_width", 4),
        ("temperature", 0.7),
        ("block_length", 8),
        ("confidence", "margin"),
        ("order", "guidance_boost"),
        ("eos", "eos_fill"),
        ("tail_reuse", "prefix:8"),
        ("guided_width", 2),
        ("boost_threshold", 0.5),
        ("tail_threshold", 0.9),
        ("top_p", 0.9),
        ("model_hash", "another"),
    ],
)
@pytest.mark.parametrize("source", trained_sources())
def test_outside_its_regime_no_source_is(resolver, regime, source, field, value):
    choice = resolver.resolve(GateSettings(source), dataclasses.replace(regime, **{field: value}))
    assert choice.gate is None
    assert field in choice.fallback_reason
    assert choice.nearest_regime["family"] == "commongen-k3"
    inside = dataclasses.replace(regime, **choice.nearest_regime)
    assert resolver.resolve(GateSettings("value"), inside).gate is not None


def test_no_gate_is_borrowed_and_the_nearest_regime_is_told(resolver, regime):
    for family in ("commongen-k4", None):
        choice = resolver.resolve(GateSettings("policy"), dataclasses.replace(regime, family=family))
        assert choice.gate is None
        assert choice.nearest_regime["family"] == "commongen-k3"
    foreign = dataclasses.replace(regime, family="commongen-k4", model_hash="another")
    assert resolver.resolve(GateSettings("policy"), foreign).nearest_regime is None


def test_a_measured_constant_goes_before_the_trained_one(model, resolver, regime):
    cut = ConstantCut(regime, 0.35, {})
    both = LearnedGates(resolver.bundles, ConstantGates((cut,)), resolver.reader)
    assert both.resolve(GateSettings("constant"), regime).gate.fraction == 0.35
    assert resolver.resolve(GateSettings("constant"), regime).gate.fraction == resolver.bundles[0].constants[1]
    assert both.resolve(GateSettings("fraction", fraction=0.2), regime).gate == FractionGate(0.2)


def test_a_risk_that_cannot_be_promised_falls_back(resolver, regime):
    choice = resolver.resolve(GateSettings("risk", margin=0.01), regime)
    assert choice.gate is None
    assert "calibration prompts" in choice.fallback_reason


def test_a_refused_gate_is_the_reason(model, regime, tmp_path):
    artifact.save(gates.bundle(model.spec.hash), tmp_path / "commongen-k3")
    path = tmp_path / "commongen-k3" / artifact.DESCRIPTION
    path.write_text(path.read_text().replace('"made-up"', '"tampered"', 1))
    bundles, refused = artifact.load_all(tmp_path)
    held = LearnedGates(bundles, ConstantGates(()), TextReader.of(model.spec, model.codec), refused)
    choice = held.resolve(GateSettings("policy"), regime)
    assert choice.gate is None
    assert "changed after training" in choice.fallback_reason


def decode(model, gate, count=4, **policy):
    given = {"gate": GateSettings(gate.source), **policy}
    jobs = [
        dataclasses.replace(
            job(model, length=16, seed=seed, family="commongen-k3", constraint=CONSTRAINT, record="gate", gate=gate),
            policy=resolve_policy("handoff", given, gen_length=16),
        )
        for seed in range(count)
    ]
    engine = Engine(model)
    handles = engine.submit_all(jobs)
    while engine.step():
        pass
    return [handle.result() for handle in handles]


@pytest.mark.parametrize("source", trained_sources())
@pytest.mark.parametrize("width", [1, 8])
def test_the_engine_hands_off_at_a_checkpoint_and_says_what_was_predicted(model, resolver, source, width):
    settings = {"risk": {"margin": 0.12, "confidence": 0.9}, "value": {"row_price": 0.05}}
    setting = GateSettings(source, **settings.get(source, {}))
    gate = resolver.resolve(setting, gates.regime(model.spec.hash, tail_width=width)).gate
    allowed = gate.checkpoints(16)
    for outcome in decode(model, gate, tail_width=width):
        assert regime_of(outcome.job, model.spec.hash).tail_width == width
        assert outcome.decision is not None
        assert outcome.fallback_reason is None
        if source == "risk" and outcome.handoff_step is None:
            continue
        assert outcome.handoff_step in allowed
        assert outcome.decision.predicted_horizon is not None
        guided = [stats for stats in outcome.trace.steps if stats.phase == "guided"]
        assert len(guided) == outcome.handoff_step
        assert outcome.ledger.of("unconditional") == outcome.handoff_step
        assert all(stats.masked_entropy is not None and stats.argmax_positions for stats in guided[:-1])
        assert all(stats.masked_entropy is None for stats in outcome.trace.steps[outcome.handoff_step :])


def test_policy_defaults_to_the_constant_and_departs_only_when_confident(model, resolver):
    held = resolver.bundles[0]
    regime = gates.regime(model.spec.hash)
    sure = resolver.resolve(GateSettings("policy"), regime).gate
    never_sure = dataclasses.replace(sure, tau=1.1)
    for outcome in decode(model, never_sure):
        assert outcome.handoff_step == step_at(held.constants[1], 16)
        assert outcome.decision.handoff_fate in held.fates.classes
    unlearned = dataclasses.replace(sure, fates=None, horizons=None)
    assert unlearned.needs_stats is False
    assert unlearned.planned_step(16) == step_at(held.constants[1], 16)
    assert dataclasses.replace(unlearned, constant=None).planned_step(16) == 16
    assert all(outcome.handoff_step == step_at(held.constants[1], 16) for outcome in decode(model, unlearned))


def test_a_dearer_row_never_makes_a_value_gate_later(model, resolver):
    """On equal prefixes: the advantage of going on falls with the price."""
    regime = gates.regime(model.spec.hash)
    steps = [
        [
            outcome.handoff_step or 16
            for outcome in decode(model, resolver.resolve(GateSettings("value", row_price=p), regime).gate)
        ]
        for p in (0.0, 0.002, 0.05, 1.0)
    ]
    assert steps[-1] == [2] * 4  # the first checkpoint
    assert sum(steps[-1]) <= sum(steps[0])
