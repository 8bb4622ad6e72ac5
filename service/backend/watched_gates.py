"""Which gates the shadow audit watches, how they are distinguished, and what a request gets while one is suspended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Final

from decoding.gates.builtin import DrainedGate, FractionGate
from decoding.gates.protocol import Gate, GateResolution, GateResolver, Regime
from decoding.policy.gate import GATE_FIELDS, GateSettings, GateSource
from gate_models.gates.calibrated.pooled import evidence_of
from gate_models.gates.sources import SOURCES, held_sources
from service.backend.backend import Backend

_SHAPE: Final = ("gen_length", "guidance_scale", "steps")
_PLAIN: Final = Regime("", None, 0.0, 0, 0, 0, 1.0, None, "probability", "confidence", "as_is")
_NAMED: Final = ("model_hash", "family", "tail_width")


@dataclass(frozen=True)
class AuditedGate:
    """What pairs are counted for: a gate that may end guidance, at one tail width and one setting.

    `version` is the trained gate's (`GateBundle.version`) or the cut's (`constants.version_of`). `settings` is what
    else changes its decisions: a risk gate's margin and confidence, a value gate's row price, a calibrated number with
    the setting that it was measured in (numbers of one version differ in it).
    """

    model_hash: str
    family: str
    source: str
    version: str
    tail_width: int
    settings: tuple[tuple[str, float | str], ...] = ()

    @cached_property
    def id(self) -> str:
        """Digest of all fields."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        """For logs: "raw 3f2a9c of commongen-k3, K = 8"."""
        rest = "".join(f", {name} {value}" for name, value in self.settings)
        return f"{self.source} {self.version} of {self.family}, K = {self.tail_width}{rest}"


def audited(gate: Gate, setting: GateSettings, regime: Regime) -> AuditedGate | None:
    """The identity of `gate`, resolved for `setting` in `regime`. None where no handoff of it needs an audit."""
    if not SOURCES[setting.source].watched or regime.family is None or evidence_of(gate.version) != "audited":
        return None  # nobody calibrated it for the family
    if gate.planned_step(regime.steps) == regime.steps or setting.recheck is not None:
        return None  # with a recheck guidance comes back: there is no one handoff
    settings: dict[str, float | str] = {}
    match gate:
        case FractionGate():
            settings = {"fraction": gate.fraction, **_measured_in(regime)}
        case DrainedGate():
            settings = {"threshold": gate.threshold, **_measured_in(regime)}
        case _:
            for name in GATE_FIELDS[setting.source]:
                settings[name] = setting.asked_or_default(name)
    named = (regime.model_hash, regime.family, gate.source, gate.version, regime.tail_width)
    return AuditedGate(*named, tuple(sorted(settings.items())))


def _measured_in(regime: Regime) -> dict[str, float | str]:
    """The shape of the canvas, and what else is not as usual."""
    names = [item.name for item in fields(Regime) if item.name not in _NAMED]
    return {
        name: getattr(regime, name)
        for name in names
        if name in _SHAPE or getattr(regime, name) != getattr(_PLAIN, name)
    }


def held_gates(backend: Backend) -> tuple[AuditedGate, ...]:
    """The gates that `backend` holds for its model, at the sources' own settings."""
    return tuple(dict.fromkeys(_held(backend)))


def _held(backend: Backend) -> Iterator[AuditedGate]:
    model_hash = backend.model.spec.hash
    offered: list[tuple[GateSource, Regime]] = []
    offered += [("constant", cut.regime) for cut in backend.cuts]
    offered += [("drained", threshold.regime) for threshold in backend.thresholds]
    offered = [(source, regime) for source, regime in offered if regime.model_hash == model_hash]
    for bundle in backend.gates.bundles:
        if bundle.regime.model_hash == model_hash:
            for width in bundle.regime.tail_widths:
                offered += [(source, bundle.regime.lowest(width)) for source in held_sources(bundle, width)]
    for source, regime in offered:
        gate = held_gate(backend.gates, source, regime)
        if gate is not None:
            yield gate


def held_gate(gates: GateResolver, source: GateSource, regime: Regime) -> AuditedGate | None:
    """The gate that a request of this source and regime gets by default, if it is watched."""
    setting = GateSettings(source)
    choice = gates.resolve(setting, regime)
    return None if choice.gate is None else audited(choice.gate, setting, regime)


@dataclass(frozen=True, slots=True)
class SuspendedChoice(GateResolution):
    """No gate, because its audit has shown harm. `withheld` is asked in the shadow, so that it can recover."""

    withheld: Gate | None = None


@dataclass(frozen=True, slots=True)
class WatchedGates:
    """A `GateResolver` that withholds suspended gates. `suspended` tells why a gate is; None where it is not."""

    gates: GateResolver
    suspended: Callable[[AuditedGate], str | None]

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """As `gates` resolves it; a suspended gate is no gate, with the reason."""
        choice = self.gates.resolve(setting, regime)
        named = None if choice.gate is None else audited(choice.gate, setting, regime)
        reason = None if named is None else self.suspended(named)
        return choice if reason is None else SuspendedChoice(None, reason, withheld=choice.gate)
