"""The verdict on each gate from its audited pairs: read from the database at the start, then updated pair by pair."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from gate_models.gates.monitor import AuditPair, GateMonitor, GateState, MonitorVerdict
from service.backend.watched_gates import AuditedGate
from service.config.settings import Settings
from service.metrics.recorder import Metrics
from service.shadow_audit.store import GateRecord, ShadowStore
from service.shadow_audit.tables import CompletedPair

logger = logging.getLogger(__name__)

_LEVEL: Final = {"active": logging.INFO, "uncertified": logging.INFO, "suspended": logging.WARNING}
_MEANS: Final = {
    "active": "no harm beyond the margin",
    "uncertified": "not enough evidence",
    "suspended": "handing off costs more success than the margin; its requests fall back until it recovers",
}


class GateVerdicts:
    """The verdict on every gate of a model. `refresh` belongs to one thread; the rest may be called from any.

    `held` are the gates of this server at their default settings; the metrics of a family describe them.
    """

    def __init__(
        self, store: ShadowStore, model_hash: str, held: Sequence[AuditedGate], settings: Settings, metrics: Metrics
    ) -> None:
        self.store, self.model_hash, self.held = store, model_hash, tuple(held)
        self.settings, self.metrics = settings, metrics
        self._monitors: dict[AuditedGate, GateMonitor] = {}
        self._verdicts: dict[AuditedGate, MonitorVerdict] = {}
        self._states: dict[AuditedGate, GateState] = {}
        self._names: dict[str, AuditedGate] = {}
        self._last = 0
        self._read = False
        self._empty = GateMonitor(margin=settings.audit_margin, confidence=settings.audit_confidence).verdict
        for record in store.gates(model_hash):  # what the last server found, until the pairs have been read again
            self._names[record.gate.id] = record.gate
            self._states[record.gate] = _state(record)
            if record.state == "suspended":
                logger.warning("gate %s is suspended: %s", record.gate.name, _MEANS["suspended"])
        self._publish()

    def verdict(self, gate: AuditedGate) -> MonitorVerdict:
        """What the pairs say; of a gate without any, that there are none."""
        return self._verdicts.get(gate, self._empty)

    def state(self, gate: AuditedGate) -> GateState:
        return self._states.get(gate, "uncertified")

    def suspended(self, gate: AuditedGate) -> str | None:
        """Why a suspended gate must not serve; None where the gate may."""
        if self.state(gate) != "suspended":
            return None
        margin = self.settings.audit_margin
        return f"gate suspended by the shadow audit: handing off costs more success than the margin of {margin:g}"

    def share(self, gate: AuditedGate) -> float:
        """The share of the gate's samples that is chosen now: more while there is something to find out."""
        share = self.settings.audit_share
        if share == 0.0 or self.state(gate) == "active":
            return share
        return max(share, self.settings.audit_share_uncertified)

    def refresh(self) -> None:
        """Take in the pairs that this server or others have completed since the last call."""
        fresh: dict[str, list[CompletedPair]] = defaultdict(list)
        pairs = self.store.pairs(self.model_hash, self._last)
        for pair in pairs:
            fresh[pair.gate_id].append(pair)
        if not fresh.keys() <= self._names.keys():
            self._names |= {record.gate.id: record.gate for record in self.store.gates(self.model_hash)}
        for gate_id, pairs_of_gate in fresh.items():
            self._add(self._names[gate_id], pairs_of_gate)
        if not self._read:
            self._forget_unfounded()
            self._read = True
        if pairs:
            self._last = pairs[-1].sequence
            self._publish()

    def _add(self, gate: AuditedGate, pairs: Iterable[CompletedPair]) -> None:
        verdicts = [AuditPair(prompt=pair.prompt, handoff=pair.handoff_ok, full=pair.full_ok) for pair in pairs]
        monitor = self._monitors.get(gate)
        if monitor is None:
            settings = self.settings
            monitor = GateMonitor.replay(verdicts, margin=settings.audit_margin, confidence=settings.audit_confidence)
            self._monitors[gate] = monitor
        else:
            for pair in verdicts:
                monitor.add(pair)
        self._verdicts[gate] = verdict = monitor.verdict
        self._become(gate, verdict.state)

    def _forget_unfounded(self) -> None:
        """Reset the state of gates that have no pair in the database."""
        for gate in [gate for gate in self._states if gate not in self._monitors]:
            self._become(gate, "uncertified")

    def _become(self, gate: AuditedGate, state: GateState) -> None:
        if self.state(gate) != state or gate not in self._states:
            counts = self.verdict(gate).counts
            logger.log(_LEVEL[state], "gate %s is %s: %s (%s)", gate.name, state, _MEANS[state], dict(counts))
            self.store.changed(gate, state)
        self._states[gate] = state

    # -- metrics -----------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """A family is suspended where one of the gates that this server offers is; else it is as the most audited."""
        states: dict[str, GateState] = {}
        for family in dict.fromkeys(gate.family for gate in self.held):
            gates = [gate for gate in self.held if gate.family == family]
            suspended = any(self.state(gate) == "suspended" for gate in gates)
            states[family] = "suspended" if suspended else self.state(self._most_audited(gates))
            for source in dict.fromkeys(gate.source for gate in gates):
                gate = self._most_audited([gate for gate in gates if gate.source == source])
                verdict = self.verdict(gate)
                if verdict.pairs:
                    gap = math.nan if verdict.gap is None else verdict.gap
                    self.metrics.audit_gap(family, source, estimate=gap, low=verdict.low, high=verdict.high)
        self.metrics.gate_states(states)

    def _most_audited(self, gates: Sequence[AuditedGate]) -> AuditedGate:
        return max(gates, key=lambda gate: self.verdict(gate).pairs)


def _state(record: GateRecord) -> GateState:
    known: dict[str, GateState] = {"active": "active", "suspended": "suspended"}
    return known.get(record.state, "uncertified")
