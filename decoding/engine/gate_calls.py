"""Asking the gates: one call a gate and step, for every guided request that stands at one of its checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from decoding.engine.handle import Handle
from decoding.engine.observer import GateReport, Notify
from decoding.gates.protocol import Gate

logger = logging.getLogger(__name__)


def ask_gates(handles: Sequence[Handle], model_hash: str, notify: Notify, *, arriving: bool = False) -> None:
    """Let the gates decide for those of `handles` that are due; `notify` gets one report a gate.

    A request that arrives half done (`arriving`) is also asked about where it has passed a checkpoint. Where a gate
    fails, guidance stays on.
    """
    due: dict[int, tuple[Gate, list[Handle]]] = {}
    for handle in handles:
        if _is_due(handle, arriving=arriving):
            gate = handle.state.job.gate
            due.setdefault(id(gate), (gate, []))[1].append(handle)
    for gate, asked in due.values():
        began = time.monotonic()
        try:
            decisions = gate.decide([handle.state.view(model_hash) for handle in asked])
        except Exception as error:
            logger.exception("gate %s failed", gate.source)
            for handle in asked:
                handle.state.fallback_reason = f"the gate failed ({type(error).__name__}); guidance stays on"
            continue
        pairs = list(zip(asked, decisions, strict=True))
        for handle, decision in pairs:
            handle.state.decision = decision
            if decision.handoff:
                handle.state.hand_off()
        notify(GateReport(gate, pairs, time.monotonic() - began))


def _is_due(handle: Handle, *, arriving: bool) -> bool:
    state = handle.state
    if state.phase != "guided":
        return False
    checkpoints = state.job.gate.checkpoints(state.job.steps)
    if checkpoints is None or state.step in checkpoints:
        return True
    return arriving and min(checkpoints, default=state.step + 1) < state.step
