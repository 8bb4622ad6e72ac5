"""Traces as bytes: JSON, one list a field over the steps, fields that say nothing left out.

The format names its fields, so that a trace outlives a change of `StepStats`: unknown fields are ignored, missing ones
take their default. Floats are rounded to `digits` significant digits (7 is what float32 logits carry).
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields
from typing import Any, Final, get_args, get_type_hints

from decoding.records.trace import Resumption, StepStats, Summary, Trace
from decoding.sampling.stability import TailState

_SUMMARY: Final = tuple(Summary.__dataclass_fields__)
_SUMMARIES: Final = frozenset(
    name for name, kind in get_type_hints(StepStats).items() if Summary in get_args(kind) or kind is Summary
)
_DEFAULTS: Final = {item.name: item.default for item in fields(StepStats) if item.default is not MISSING}
_NAMES: Final = frozenset(item.name for item in fields(StepStats))


def encode_trace(trace: Trace, digits: int = 7) -> bytes:
    """A trace as UTF-8 JSON."""
    steps: dict[str, list[Any]] = {}
    for item in fields(StepStats):
        values = [getattr(stats, item.name) for stats in trace.steps]
        if item.name in _DEFAULTS and all(value == _DEFAULTS[item.name] for value in values):
            continue
        steps[item.name] = [_plain(value, digits) for value in values]
    content = {
        "start": trace.start,
        "end_id": trace.end_id,
        "start_step": trace.start_step,
        "resumed": [asdict(resumption) for resumption in trace.resumed],
        "count": len(trace.steps),
        "steps": steps,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_trace(data: bytes) -> Trace:
    """The trace of `encode_trace`. Raises `ValueError` where it is none."""
    content = json.loads(data)
    columns = {name: values for name, values in content["steps"].items() if name in _NAMES}
    steps = [
        StepStats(**{name: _value(name, values[index]) for name, values in columns.items()})
        for index in range(content["count"])
    ]
    resumed = [Resumption(**{name: _value(name, v) for name, v in entry.items()}) for entry in content["resumed"]]
    return Trace(tuple(content["start"]), content["end_id"], content["start_step"], steps, resumed)


def step_count(data: bytes) -> int:
    """How many steps the trace of `encode_trace` has."""
    count: int = json.loads(data)["count"]
    return count


def _plain(value: Any, digits: int) -> Any:
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Summary):
        return [_plain(getattr(value, name), digits) for name in _SUMMARY]
    if isinstance(value, tuple | list):
        return [_plain(entry, digits) for entry in value]
    raise TypeError(f"a trace holds a {type(value).__name__}, which has no JSON form")


def _value(name: str, value: Any) -> Any:
    if name in _SUMMARIES:
        return None if value is None else Summary(*value)
    if name == "tail":
        return TailState.of(_tuples(value))
    return tuple(value) if isinstance(value, list) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value
