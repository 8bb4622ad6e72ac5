"""What a gate would have seen of a recorded run before one of its steps: the prefix of its trace as a `GateView`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decoding.gates.protocol import GateView, Regime
from decoding.records.trace import StepStats


def view_before(
    step: int, recorded: Sequence[StepStats], regime: Regime, prompt_tokens: int, constraint: Mapping[str, Any]
) -> GateView:
    """What a gate sees of a recorded run in `regime` before step `step`."""
    history = tuple(recorded[:step])
    decided = sum(len(stats.positions) + len(stats.filled) for stats in history)
    return GateView(regime, step, prompt_tokens, regime.gen_length - decided, history, constraint)
