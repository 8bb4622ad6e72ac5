"""Jobs of every kind, drawn at random, for properties that hold whatever is asked."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from decoding.engine.engine import Engine
from decoding.gates.builtin import DrainedGate
from decoding.policy.gate import GateSettings
from decoding.request.job import Job, Sampling
from tests.decoding.tiny import job, tiny_model

MODEL = tiny_model()


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any mix of policies, lengths, samplings and priorities."""
    length = draw(st.integers(1, 24))
    steps = draw(st.integers(1, 32))
    kind = draw(st.sampled_from(["base", "full_cfg", "fraction", "drained"]))
    policy: dict[str, Any] = {}
    if kind != "full_cfg":
        policy["tail_width"] = draw(st.integers(1, length))
    if kind != "base":
        policy["guided_width"] = draw(st.integers(1, min(4, length)))
        policy["order"] = draw(st.sampled_from(["confidence", "random", "guidance_boost"]))
    extra: dict[str, Any] = {}
    if kind == "fraction":
        extra["fraction"] = draw(st.floats(0, 1))
    if kind == "drained":
        threshold = draw(st.floats(0.05, 1.0))
        policy["gate"], extra["gate"] = GateSettings("drained", threshold=threshold), DrainedGate(threshold)
    return job(
        MODEL,
        preset={"fraction": "handoff", "drained": "handoff"}.get(kind, kind),
        seed=draw(st.integers(0, 2**40)),
        length=length,
        steps=steps,
        prompt=draw(st.sampled_from(["", "a", "b c d", "x y z " * 12])),
        policy=policy,
        sampling=Sampling(
            temperature=draw(st.sampled_from([0.0, 0.6, 1.0])),
            top_p=draw(st.sampled_from([1.0, 0.8])),
            confidence=draw(st.sampled_from(["probability", "margin", "random"])),
            eos_fill=draw(st.booleans()),
        ),
        priority=draw(st.sampled_from(["interactive", "background"])),
        record=draw(st.sampled_from(["commits", "stats", "fill"])),
        **extra,
    )


def finish(engine: Engine) -> None:
    while engine.step():
        pass
