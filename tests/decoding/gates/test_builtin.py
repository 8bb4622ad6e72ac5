"""Gates in the engine: causal, batched, asked once a checkpoint; fallbacks say why."""

from __future__ import annotations

from decoding.engine.engine import Engine
from decoding.gates.builtin import BuiltinGates, DrainedGate
from decoding.gates.protocol import Decision, GateView
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.gate import GateSettings
from decoding.request.job import regime_of
from tests.decoding.tiny import job


def test_drained_gate_hands_off_when_the_branches_agree(engine: Engine, model: MiniModel) -> None:
    gate = GateSettings("drained", threshold=0.9)
    request = job(model, preset="handoff", gate=DrainedGate(0.9), policy={"gate": gate}, record="stats", length=24)
    outcome = engine.submit(request).result(600)
    assert outcome.handoff_step is not None
    guided = [s for s in outcome.trace.steps if s.phase == "guided"]
    assert all(s.total_variation_left >= 0.9 for s in guided[:-1])
    assert guided[-1].total_variation_left is None or guided[-1].total_variation_left < 0.9


def test_a_full_canvas_is_drained(engine: Engine, model: MiniModel) -> None:
    """T > L: nothing masked is left to guide, so the zero-quota steps run under base (or not at all in a wide tail)."""
    for tail, rows in ((1, 16 + 24), (4, 16)):
        policy = {"gate": GateSettings("drained"), "tail_width": tail}
        request = job(model, preset="handoff", gate=DrainedGate(1e-9), length=8, steps=32, policy=policy)
        outcome = engine.submit(request).result(600)
        assert outcome.handoff_step == 8
        assert outcome.ledger.total == rows


def test_drained_threshold_one_hands_off_after_one_step_and_tiny_never(engine: Engine, model: MiniModel) -> None:
    for threshold, expected in ((1.0, 1), (1e-9, None)):
        request = job(model, preset="handoff", gate=DrainedGate(threshold), policy={"gate": GateSettings("drained")})
        assert engine.submit(request).result(600).handoff_step == expected


class Recording:
    """A gate that notes what it was shown and hands off at step 6."""

    source, version, needs_stats = "recording", "test", True

    def __init__(self) -> None:
        self.calls: list[list[GateView]] = []

    def checkpoints(self, steps: int) -> frozenset[int]:
        return frozenset({2, 6})

    def planned_step(self, steps: int) -> None:
        return None

    def decide(self, views: list[GateView]) -> list[Decision]:
        self.calls.append(list(views))
        return [Decision(view.step >= 6) for view in views]


def test_gates_are_causal_batched_and_asked_once_a_checkpoint(model: MiniModel) -> None:
    gate = Recording()
    engine = Engine(model)
    jobs = [job(model, preset="handoff", gate=gate, seed=s, policy={"gate": GateSettings("drained")}) for s in range(5)]
    handles = engine.submit_all(jobs)
    while engine.step():
        pass
    assert [len(call) for call in gate.calls] == [5, 5]
    for call in gate.calls:
        for view in call:
            assert [s.step for s in view.history] == list(range(view.step))
            assert view.masked == 12 - view.step
    assert all(handle.result().handoff_step == 6 for handle in handles)


def test_a_job_resumed_past_its_checkpoint_hands_off_at_once(engine: Engine, model: MiniModel) -> None:
    start = (20,) * 6 + (model.spec.mask_id,) * 6
    request = job(model, preset="handoff", fraction=0.25, start=start, start_step=6)
    outcome = engine.submit(request).result(600)
    assert outcome.handoff_step == 6
    assert outcome.ledger.total == 6


def test_a_gate_that_raises_leaves_guidance_on(model: MiniModel) -> None:
    class Broken(Recording):
        def decide(self, views: list[GateView]) -> list[Decision]:
            raise RuntimeError("no")

    engine = Engine(model)
    handle = engine.submit(job(model, preset="handoff", gate=Broken(), policy={"gate": GateSettings("drained")}))
    while engine.step():
        pass
    outcome = handle.result()
    assert outcome.handoff_step is None
    assert "gate failed" in (outcome.fallback_reason or "")


def test_builtin_gates_resolve_or_say_why(model: MiniModel) -> None:
    gates = BuiltinGates()
    other = regime_of(job(model, preset="handoff", fraction=0.1, family="commongen-k4"), "hash")
    assert "commongen-k4" in (gates.resolve(GateSettings("constant"), other).fallback_reason or "")
    nobody = regime_of(job(model, preset="handoff", fraction=0.1), "hash")
    assert "family" in (gates.resolve(GateSettings("policy"), nobody).fallback_reason or "")
    assert gates.resolve(GateSettings("fraction", fraction=0.2), nobody).gate is not None
