"""Which gate a request gets: its family's learned one inside the audited regime, else one of the gates below it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from decoding.gates.protocol import Gate, GateResolution, GateResolver, MeasuredLoss, Regime
from decoding.policy.gate import GateSettings
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import MEASURED
from gate_models.gates.learned.audit_report import AuditReport
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.learned.gates import ValueGate
from gate_models.gates.sources import SOURCES

MOST_CACHED: Final = 1024
"""Gates kept so that requests of one setting share one; prices and margins are free, so the number is bounded."""


class LearnedGates:
    """Resolves the sources that bundles serve; the others, and those that were calibrated here, go to `below`.

    `bundles` may hold several gates of a family (other models, other canvases): the one that fits is taken, never one
    of another family. `refused`: (folder's name, reason) of the stored gates that must not be used. `reports`: their
    offline audits by version. Thread-safe.
    """

    def __init__(
        self,
        bundles: Sequence[GateBundle],
        below: GateResolver,
        reader: TextReader,
        refused: Sequence[tuple[str, str]] = (),
        reports: Mapping[str, AuditReport] = MappingProxyType({}),
    ) -> None:
        self.bundles = tuple(bundles)
        self.below = below
        self.reader = reader
        self.refused = tuple(refused)
        self.reports = reports
        self._made: dict[tuple[object, ...], GateResolution] = {}

    @property
    def version(self) -> str:
        """Digest of all gates held, for `build_info`; the constants' where none is learned."""
        if not self.bundles:
            return MEASURED
        return hashlib.sha256(" ".join(bundle.version for bundle in self.bundles).encode()).hexdigest()[:12]

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The gate for `setting` in `regime`, or why there is none and which audited regime is nearest."""
        source = SOURCES[setting.source]
        if source.gate is None:
            return self.below.resolve(setting, regime)
        of_family = [bundle for bundle in self.bundles if bundle.family == regime.family]
        here = [bundle for bundle in of_family if bundle.regime.model_hash == regime.model_hash]
        if source.calibrated is not None:
            measured = self.below.resolve(setting, regime)
            if measured.gate is not None or not here:
                return measured
        if not of_family:
            return self._without(setting, regime)
        bundle = min(here or of_family, key=lambda candidate: len(candidate.regime.differences(regime)))
        if not here:
            reason = f"the '{regime.family}' gate was made with another model (model_hash {bundle.regime.model_hash})"
            return GateResolution(None, reason, bundle.regime.nearest(regime))
        if differing := bundle.regime.differences(regime):
            reason = f"outside the audited regime of the '{regime.family}' gate: {'; '.join(differing)}"
            return GateResolution(None, reason, bundle.regime.nearest(regime))
        key = (setting, id(bundle), regime.tail_width)
        choice = self._made.get(key)
        if choice is None:
            choice = self._choice(bundle, setting, regime.tail_width)
            if len(self._made) < MOST_CACHED:
                choice = self._made.setdefault(key, choice)
        return choice

    def _without(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The fallback without a gate of the family, or without a family; a stored one that was refused is the reason.

        The nearest regime is another family's: it tells what is audited here, its gate is not borrowed.
        """
        mine = [reason for family, reason in self.refused if family == regime.family]
        if mine:
            return GateResolution(None, f"the stored gate of family '{regime.family}' is refused: {mine[0]}")
        choice = self.below.resolve(setting, regime)
        audited = [bundle.regime for bundle in self.bundles if bundle.regime.model_hash == regime.model_hash]
        if choice.gate is not None or choice.nearest_regime is not None or not audited:
            return choice
        nearest = min(audited, key=lambda candidate: len(candidate.differences(regime)))
        return replace(choice, nearest_regime=nearest.nearest(regime))

    def _choice(self, bundle: GateBundle, setting: GateSettings, width: int) -> GateResolution:
        """The gate of `bundle` for `setting` at tail width `width`, which is audited."""
        gate = SOURCES[setting.source].gate
        if gate is None or not gate.held_by(bundle, width):
            missing = (
                f"the '{bundle.family}' gate has no '{setting.source}' source: its training data could not fit one"
            )
            return GateResolution(None, missing)
        choice = gate.resolve(bundle, width, setting, self.reader)
        return (
            choice if choice.gate is None else replace(choice, evidence="audited", measured=self._loss(choice, width))
        )

    def _loss(self, choice: GateResolution, width: int) -> MeasuredLoss | None:
        """What the gate's offline audit measured at this tail width and setting; None where it has no such arm."""
        gate = choice.gate
        report = None if gate is None else self.reports.get(gate.version)
        return None if gate is None or report is None else report.loss(_arm(gate), width)


def _arm(gate: Gate) -> str:
    """A gate's name among the arms of an audit ("value 0.002", "risk 0.05", "policy")."""
    return f"value {gate.price:g}" if gate.source == "value" and isinstance(gate, ValueGate) else gate.source
