"""The gates that need no learning: a fixed fraction, never, and guidance that no longer changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from decoding.gates.protocol import Decision, GateResolution, GateView, Regime
from decoding.policy.gate import GateSettings
from decoding.sampling.block_schedule import step_at

BUILTIN: Final = "builtin"
"""Version of a gate that nobody calibrated."""


@dataclass(frozen=True, slots=True)
class FractionGate:
    """Hands off at a fixed fraction of the steps (sources `fraction` and `constant`)."""

    fraction: float
    source: str = "fraction"
    version: str = BUILTIN
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
    version: str = BUILTIN
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
    half-written. No handoff before the fraction `earliest` of the steps.
    """

    threshold: float
    earliest: float = 0.0
    source: str = "drained"
    version: str = BUILTIN
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
        drained &= view.step >= step_at(self.earliest, view.regime.steps)
        drained |= view.masked == 0
        return Decision(drained, statistic=last)


class BuiltinGates:
    """The gates that need neither learning nor calibration."""

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        if setting.source == "fraction" and setting.fraction is not None:
            return GateResolution(FractionGate(setting.fraction))
        if setting.source == "never":
            return GateResolution(NeverGate())
        if setting.source == "drained":
            return GateResolution(DrainedGate(setting.asked_or_default("threshold"), setting.earliest or 0.0))
        if regime.family is None:
            return GateResolution(
                None, f"gate source '{setting.source}' needs a family, and this constraint belongs to none"
            )
        return GateResolution(None, f"no '{setting.source}' gate for family '{regime.family}' on this model")
