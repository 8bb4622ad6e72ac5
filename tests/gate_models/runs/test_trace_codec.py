"""A trace survives its encoding, whatever its steps hold."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from decoding.engine.engine import Engine
from decoding.records.trace import Resumption, StepStats, Summary, Trace
from gate_models.offline.runs.trace_codec import decode_trace, encode_trace
from tests.decoding.tiny import job, tiny_model

SUMMARY = Summary(3, 0.1, 0.2, 0.3, 0.4, 0.05)


def recorded() -> Trace:
    model = tiny_model()
    engine = Engine(model)
    handle = engine.submit(job(model, length=6, record="fill"))
    while engine.step():
        pass
    return handle.result(0).trace


def test_a_recorded_trace_comes_back_to_seven_digits() -> None:
    trace = recorded()
    back = decode_trace(encode_trace(trace))
    assert len(back.steps) == 6
    for one, other in zip(trace.steps, back.steps, strict=True):
        for item in fields(StepStats):
            kept, restored = getattr(one, item.name), getattr(other, item.name)
            if isinstance(kept, Summary):
                assert restored.count == kept.count
                assert restored.mean == pytest.approx(kept.mean, rel=1e-6)
            elif isinstance(kept, tuple) and any(isinstance(value, float) for value in kept):
                assert restored == pytest.approx(kept, rel=1e-6)
            else:
                assert restored == (pytest.approx(kept, rel=1e-6) if isinstance(kept, float) else kept)
                assert type(restored) is type(kept)
    assert (back.prefix(4, -1) == trace.prefix(4, -1)).all()
    assert back.place(3) == trace.place(3)


def test_stored_values_are_fixed_points() -> None:
    """Encoding what was decoded changes nothing: a census read and written again is the same census."""
    data = encode_trace(recorded())
    assert encode_trace(decode_trace(data)) == data


def test_resumptions_and_rare_fields_come_back() -> None:
    step = StepStats(0, "guided", 1, (1,), (7,), (0.5,), 2, (0, 3, True), (2,), kl=SUMMARY, masked_entropy=None)
    trace = Trace((9, 9, 9), 8, 0, [step], [Resumption(0, (9, 9, 9), (1, 2), 1, 1)])
    assert decode_trace(encode_trace(trace)) == trace


def test_a_trace_outlives_its_fields() -> None:
    """A field that is not known any more is ignored, one that was not known then takes its default."""
    trace = Trace((9,), 8, 0, [StepStats(0, "base", 0, (0,), (7,), (0.5,), 1, boost_max=0.25)])
    content = json.loads(encode_trace(trace))
    content["steps"]["gone"] = [1]
    del content["steps"]["boost_max"]
    assert decode_trace(json.dumps(content).encode()).steps == [replace(trace.steps[0], boost_max=None)]
