"""The learned gates as the engine asks them: one batch of views, one forest call, one decision each.

All are causal: they fire at the first checkpoint whose prefix says so. Repeated looks bias the handoff early compared
with a single one; the audit measures what that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decoding.gates.protocol import Decision, GateView
from decoding.sampling.block_schedule import step_at
from gate_models.features import vector
from gate_models.features.argmax_fill import Reader
from gate_models.forest.heads import TAU
from gate_models.forest.value_head import ValueHead
from gate_models.gates.bundle import FateHead, HorizonHead


@dataclass(frozen=True, slots=True)
class _Learned:
    """What the learned gates have in common."""

    version: str
    fractions: tuple[float, ...]
    reader: Reader

    @property
    def needs_stats(self) -> bool:
        return True

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        return frozenset(step_at(fraction, steps) for fraction in self.fractions)

    def planned_step(self, steps: int) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class RawGate(_Learned):
    """The ordinal head alone: hands off at the first checkpoint f with f >= a_hat(f)."""

    horizons: HorizonHead
    source: str = "raw"

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        horizons = self.horizons.predict(vector.matrix(views, self.reader))
        return [
            Decision(view.step / view.regime.steps >= horizon, predicted_horizon=float(horizon))
            for view, horizon in zip(views, horizons, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class PolicyGate(_Learned):
    """The paper's deployable policy: the constant cut, unless the fate head is confident (tau = 0.6) that this prompt
    is of the handoff class; then the upper edge of the predicted tercile.

    `constant` None: without confidence guidance stays on. Where a family's data trained no heads, it is the constant.
    """

    fates: FateHead | None
    horizons: HorizonHead | None
    constant: float | None
    tau: float = TAU
    source: str = "policy"

    @property
    def learned(self) -> bool:
        """Whether a prefix can change the decision."""
        return self.fates is not None and self.horizons is not None

    @property
    def needs_stats(self) -> bool:
        return self.learned

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        own = () if self.constant is None else (self.constant,)
        return frozenset(step_at(f, steps) for f in (*(self.fractions if self.learned else ()), *own))

    def planned_step(self, steps: int) -> int | None:
        if self.learned:
            return None
        return steps if self.constant is None else step_at(self.constant, steps)

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        if self.fates is None or self.horizons is None:
            return [self._decision(view, self.constant, None, None) for view in views]
        found = vector.matrix(views, self.reader)
        fates, confidence = self.fates.predict(found)
        edges = self.horizons.upper_edge(self.horizons.predict(found))
        return [
            self._decision(
                view,
                float(edge) if fate == "handoff" and sure >= self.tau else self.constant,
                fate,
                float(sure),
            )
            for view, fate, sure, edge in zip(views, fates, confidence, edges, strict=True)
        ]

    @staticmethod
    def _decision(view: GateView, target: float | None, fate: str | None, sure: float | None) -> Decision:
        return Decision(
            target is not None and view.step >= step_at(target, view.regime.steps),
            predicted_horizon=target,
            handoff_fate=fate,
            fate_confidence=sure,
        )


@dataclass(frozen=True, slots=True)
class ValueGate(_Learned):
    """Stops guidance where going on is worth less than the rows it costs (sources `value` and `risk`).

    `price`: success that one forward evaluation is worth. `earliest`: no handoff before this fraction of the steps,
    which is how `risk` holds it back. `Decision.statistic` is the predicted remaining value V.
    """

    head: ValueHead
    price: float
    earliest: float = 0.0
    source: str = "value"

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        first = step_at(self.earliest, steps)
        return frozenset(step for f in self.fractions if (step := step_at(f, steps)) >= first)

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        predicted = self.head.predict(vector.matrix(views, self.reader))
        advantages = self.head.advantage(predicted, self.price)
        decisions = []
        for view, value, advantage in zip(views, predicted[:, 0], advantages, strict=True):
            stop = bool(advantage <= 0.0) and view.step >= step_at(self.earliest, view.regime.steps)
            horizon = view.step / view.regime.steps if stop else None
            decisions.append(Decision(stop, predicted_horizon=horizon, statistic=float(value)))
        return decisions
