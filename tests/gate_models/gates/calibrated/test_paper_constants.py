"""The paper's cuts for LLaDA-8B-Instruct: its numbers, marked as its, for that model alone."""

from __future__ import annotations

import dataclasses

import pytest

from decoding.constraints import FAMILIES
from decoding.engine.engine import Engine
from decoding.models.registry import load_model
from decoding.models.tools.make_random import make_random
from decoding.policy.gate import GateSettings
from decoding.request.job import regime_of
from decoding.sampling.block_schedule import step_at
from gate_models.gates.calibrated.constant import ConstantGates, version_of
from gate_models.gates.calibrated.paper_constants import SOURCE, is_llada_instruct, paper_constants
from tests.decoding.tiny import job, tiny_model


@pytest.fixture(scope="module")
def llada(tmp_path_factory):
    """A random LLaDA in the published layout, in a folder of the real one's name."""
    folder = tmp_path_factory.mktemp("hub") / "LLaDA-8B-Instruct"
    make_random("llada", folder)
    return load_model(str(folder))


def test_only_llada_instruct_is_taken_for_it(llada):
    assert is_llada_instruct(llada.spec)
    for name, expected in (("GSAI-ML/LLaDA-8B-Instruct@main", True), ("GSAI-ML/LLaDA-1.5", False), ("x", False)):
        assert is_llada_instruct(dataclasses.replace(llada.spec, name=name)) is expected
    assert not is_llada_instruct(dataclasses.replace(llada.spec, architecture="Dream"))
    assert paper_constants(tiny_model().spec) == []


def test_the_figures_are_the_paper_s(llada):
    cuts = {(cut.regime.family, cut.regime.tail_width): cut for cut in paper_constants(llada.spec)}
    assert {family for family, _ in cuts} == set(FAMILIES) - {"cognac-avoidance"}
    at_one = {family: cut.fraction for (family, width), cut in cuts.items() if width == 1}
    assert at_one["ccg-sentiment"] == 0.15
    assert at_one["ifeval-kw-freq"] == 0.45
    assert at_one["collie-c07"] == 0.10
    assert at_one["collie-c06a"] is None  # no survivors: never
    assert (
        at_one["ccg-length"] == 0.7
    )  # the family cut is 0.6, and at K = 4 nothing before 0.7 keeps full CFG's success
    for family, cut in at_one.items():
        four = cuts[family, 4].fraction
        assert (cut is None) == (four is None)
        assert cut is None or cut >= four
    wide = cuts["commongen-k3", 8]
    assert wide.fraction == 0.8  # 0.82 keeps 0.84 - 0.03, 0.79 does not
    assert wide.evidence["a_star_median"] == 0.30
    for cut in cuts.values():
        assert cut.evidence["source"] == SOURCE
        assert version_of(cut) == "paper"
        assert (cut.regime.steps, cut.regime.gen_length, cut.regime.guidance_scale) == (64, 64, 2.0)


def test_a_request_in_the_paper_s_setting_is_served(llada):
    gates = ConstantGates(tuple(paper_constants(llada.spec)))
    asked = job(llada, length=64, family="commongen-k3", preset="handoff", policy={"gate": GateSettings("constant")},
                block_length=64)  # fmt: skip
    choice = gates.resolve(GateSettings("constant"), regime_of(asked, llada.spec.hash))
    assert choice.gate is not None
    assert choice.gate.version == "paper"
    engine = Engine(llada)
    handle = engine.submit(dataclasses.replace(asked, gate=choice.gate))
    while engine.step():
        pass
    assert handle.result().handoff_step == step_at(0.8, 64)
    other = dataclasses.replace(asked, block_length=32)
    refused = gates.resolve(GateSettings("constant"), regime_of(other, llada.spec.hash))
    assert refused.gate is None
    assert "block_length" in (refused.fallback_reason or "")
