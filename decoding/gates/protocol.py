"""Gates: what switches guidance off. Here those that need no learning; learned ones are injected by the layer above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from decoding.policy import decoding_policy as policies
from decoding.policy.decoding_policy import GATE_DEFAULTS, step_at
from decoding.records.trace import StepStats


@dataclass(frozen=True, slots=True)
class Regime:
    """The setting that a gate was audited in, and that a request asks for."""

    model_hash: str
    family: str | None
    guidance_scale: float
    steps: int
    gen_length: int
    tail_width: int
    temperature: float
    block_length: int | None
    confidence: str
    order: str
    eos: str
    """How end-of-text is handled: "as_is", or the options that are on joined by "+"."""
    tail_reuse: str | None = None
    """Mode and refresh of key-value reuse, such as "prefix:8"; None: exact, as every audit is."""
    guided_width: int = 1
    boost_threshold: float | None = None
    tail_threshold: float | None = None
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class GateView:
    """What a gate may see of a request before a step: this run's earlier steps only (the gate is causal)."""

    regime: Regime
    step: int
    prompt_length: int
    masked: int
    history: Sequence[StepStats]
    constraint: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A gate's word on one request before one step."""

    handoff: bool
    predicted_horizon: float | None = None
    """Predicted a* as a fraction of the steps."""
    handoff_fate: str | None = None
    fate_confidence: float | None = None
    statistic: float | None = None
    """What was compared (for `drained` the total variation)."""


class Gate(Protocol):
    """Decides, for all requests due in a step at once, whether guidance ends before that step."""

    @property
    def source(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def needs_stats(self) -> bool:
        """Whether `history` must carry summaries and the argmax fill (they cost time); commits are always there."""
        ...

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        """Steps before which the gate wants to be asked; None: before every step."""
        ...

    def planned_step(self, steps: int) -> int | None:
        """The handoff step where it is known before the run (`steps`: never hands off); None where it is decided on the
        way.
        """
        ...

    def decide(self, views: Sequence[GateView]) -> list[Decision]: ...


@dataclass(frozen=True, slots=True)
class FractionGate:
    """Hands off at a fixed fraction of the steps (sources `fraction` and `constant`)."""

    fraction: float
    source: str = "fraction"
    version: str = "builtin"
    needs_stats: bool = False

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        return frozenset({step_at(self.fraction, steps)})

    def planned_step(self, steps: int) -> int | None:
        return step_at(self.fraction, steps)

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        return [
            Decision(v.step >= step_at(self.fraction, v.regime.steps), predicted_horizon=self.fraction) for v in views
        ]


@dataclass(frozen=True, slots=True)
class NeverGate:
    """Full CFG to the end."""

    source: str = "never"
    version: str = "builtin"
    needs_stats: bool = False

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        return frozenset()

    def planned_step(self, steps: int) -> int | None:
        return steps

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        return [Decision(False) for _ in views]


@dataclass(frozen=True, slots=True)
class DrainedGate:
    """Hands off when guided and conditional distributions agree at every position that is still masked.

    The largest total variation over those positions, as of the step before, must be below `threshold`, and no word
    half-written.
    """

    threshold: float
    source: str = "drained"
    version: str = "builtin"
    needs_stats: bool = False

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        return None

    def planned_step(self, steps: int) -> int | None:
        return None

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        return [self._one(view) for view in views]

    def _one(self, view: GateView) -> Decision:
        if not view.history:
            return Decision(False)
        last = view.history[-1].total_variation_left
        drained = last is not None and last < self.threshold and not view.history[-1].word_open
        drained |= view.masked == 0
        return Decision(drained, statistic=last)


@dataclass(frozen=True, slots=True)
class GateResolution:
    """The gate that a request gets, or why it gets none (contract 7: fallback)."""

    gate: Gate | None
    fallback_reason: str | None = None
    nearest_regime: Mapping[str, Any] | None = None


class GateResolver(Protocol):
    """Finds the gate for a setting and a regime; the layer above injects one that knows learned gates."""

    def resolve(self, setting: policies.GateSettings, regime: Regime) -> GateResolution: ...


class BuiltinGates:
    """The gates that need neither learning nor calibration."""

    def resolve(self, setting: policies.GateSettings, regime: Regime) -> GateResolution:
        if setting.source == "fraction" and setting.fraction is not None:
            return GateResolution(FractionGate(setting.fraction))
        if setting.source == "never":
            return GateResolution(NeverGate())
        if setting.source == "drained":
            threshold = GATE_DEFAULTS["threshold"] if setting.threshold is None else setting.threshold
            return GateResolution(DrainedGate(threshold))
        if regime.family is None:
            return GateResolution(
                None, f"gate source '{setting.source}' needs a family, and this constraint belongs to none"
            )
        return GateResolution(None, f"no '{setting.source}' gate for family '{regime.family}' on this model")
