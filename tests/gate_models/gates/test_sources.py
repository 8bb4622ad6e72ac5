"""Gate sources: one row each, and a new row is served, listed and named without another table."""

from __future__ import annotations

import dataclasses

import pytest

from decoding.gates.builtin import FractionGate
from decoding.gates.protocol import GateResolution
from decoding.policy import gate as policies
from decoding.policy.gate import GATE_FIELDS, GATE_SOURCES, GateSettings
from gate_models.features.argmax_fill import TextReader
from gate_models.gates import sources
from gate_models.gates.calibrated.constant import ConstantGates
from gate_models.gates.learned import artifact
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.shipped import Calibrations, gates_for, shipped_gates
from gate_models.gates.sources import SOURCES, SourceFacts, held_sources, needs_family, trained_sources, watched_sources
from gate_models.policies.names import parse_policy
from tests.decoding.tiny import tiny_model
from tests.gate_models import synthetic_gates


def test_every_source_of_the_decoder_has_one_row_in_its_order():
    assert tuple(SOURCES) == GATE_SOURCES
    for name, facts in SOURCES.items():
        assert facts.short_number is None or facts.short_number in GATE_FIELDS[name]
        assert facts.family_unless is None or facts.family_unless in GATE_FIELDS[name]
        assert (facts.gate is None and facts.calibrated is None) or facts.needs_family
    names = [facts.short_name for facts in SOURCES.values() if facts.short_name]
    assert len(names) == len(set(names))


def test_what_the_rows_say():
    assert trained_sources() == ("raw", "policy", "value", "risk")
    assert watched_sources() == ("constant", "raw", "policy", "value", "risk", "drained")
    learned = [name for name, facts in SOURCES.items() if facts.learned]
    assert learned == ["constant", "recorded", "raw", "policy", "value", "risk"]
    assert needs_family(GateSettings("drained"))
    assert not needs_family(GateSettings("drained", threshold=0.5))
    assert not needs_family(GateSettings("fraction", fraction=0.5))


def test_a_bundle_holds_what_its_data_could_fit():
    held = synthetic_gates.bundle()
    assert held_sources(held) == ("constant", "raw", "policy", "value", "risk")
    narrow = dataclasses.replace(held, values={8: held.values[8]}, risk_tests={})
    assert held_sources(narrow) == ("constant", "raw", "policy", "value")
    assert held_sources(narrow, 1) == ("constant", "raw", "policy")
    unsure = dataclasses.replace(held, fates=None, horizons=None, constants={1: None, 8: None})
    assert held_sources(unsure) == ("constant", "value", "risk")
    assert held_sources(dataclasses.replace(unsure, constants={}, values={}, risk_tests={})) == ()


class HalfWay:
    """Hands off in the middle of the run."""

    @staticmethod
    def held_by(bundle, width):
        return width == 1

    @staticmethod
    def resolve(bundle, width, setting, reader):
        return GateResolution(FractionGate(0.5, source=setting.source, version=bundle.version))


@pytest.fixture
def half_way(monkeypatch):
    """A gate source more: its name among the decoder's, and its row."""
    monkeypatch.setattr(policies, "GATE_SOURCES", (*GATE_SOURCES, "half_way"))
    monkeypatch.setattr(policies, "GATE_FIELDS", {**GATE_FIELDS, "half_way": ()})
    facts = SourceFacts(learned=True, watched=True, needs_family=True, short_name="half", gate=HalfWay)
    monkeypatch.setitem(sources.SOURCES, "half_way", facts)


@pytest.mark.usefixtures("half_way")
def test_a_new_row_is_served_watched_and_named():
    model = tiny_model()
    held = synthetic_gates.bundle(model.spec.hash)
    gates = LearnedGates([held], ConstantGates(()), TextReader.of(model.spec, model.codec))
    regime = synthetic_gates.regime(model.spec.hash)
    setting = parse_policy("half").policy.gate
    assert setting == GateSettings("half_way")
    assert gates.resolve(setting, regime).gate == FractionGate(0.5, source="half_way", version="test0")
    missing = gates.resolve(setting, dataclasses.replace(regime, tail_width=8))
    assert missing.gate is None
    assert "could not fit" in missing.fallback_reason
    assert "half_way" in held_sources(held, 1)
    assert "half_way" in watched_sources()
    assert "half_way" in trained_sources()


def test_a_folder_s_gates_go_before_the_package_s(tmp_path):
    model = tiny_model()
    own = synthetic_gates.bundle(model.spec.hash)
    artifact.save(own, tmp_path / "commongen-k3")
    shipped = shipped_gates(model)
    both = gates_for(model, Calibrations.shipped(model.spec), tmp_path)
    assert [bundle.version for bundle in both.bundles] == [own.version, *(b.version for b in shipped.bundles)]
    assert both.below.cuts == shipped.below.cuts
