"""The learned gates: each reads the features of the runs at a checkpoint and decides, for all of them at once.

All are causal: they fire at the first checkpoint whose prefix says so. Repeated looks bias the handoff early compared
with a single one; the audit measures what that does. Each class also says which bundles hold it, and makes its gate
from one (`BundledGate`): that is all the resolver needs to serve a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.gates.builtin import FractionGate, NeverGate
from decoding.gates.protocol import Decision, GateResolution, GateView
from decoding.policy.gate import GateSettings
from decoding.sampling.block_schedule import step_at
from gate_models.features import vector
from gate_models.features.argmax_fill import TextReader
from gate_models.forest.terciles import TAU
from gate_models.forest.value_head import ValueHead
from gate_models.gates.learned.bundle import FateHead, GateBundle, HorizonHead


class BundledGate(Protocol):
    """A gate that a family's bundle makes."""

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        """Whether `bundle` has what the gate needs at a tail width."""
        ...

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        """The gate for `setting`, of a bundle that holds it; or why there is none."""
        ...


class TrainedConstant:
    """The constant cut that was searched beside the heads (source `constant`)."""

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        return bool(bundle.constants)

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        cut = bundle.constants.get(width)
        if cut is None:
            return GateResolution(NeverGate(source="constant", version=bundle.version))
        return GateResolution(FractionGate(cut, source="constant", version=bundle.version))


@dataclass(frozen=True, slots=True)
class _Learned:
    """What the learned gates have in common."""

    version: str
    fractions: tuple[float, ...]
    reader: TextReader

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

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        return bundle.horizons is not None

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        if bundle.horizons is None:
            raise ValueError(f"the '{bundle.family}' gate has no horizon head")
        return GateResolution(RawGate(bundle.version, bundle.checkpoints, reader, bundle.horizons))

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

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        """With a cut to fall back on, or a fate head that departs from `never`."""
        cuts = bundle.constants.values()
        return bool(cuts) and (bundle.fates is not None or any(cut is not None for cut in cuts))

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        common = (bundle.version, bundle.checkpoints, reader)
        return GateResolution(PolicyGate(*common, bundle.fates, bundle.horizons, bundle.constants.get(width)))

    @property
    def learned(self) -> bool:
        """Whether a prefix can change the decision."""
        return self.fates is not None and self.horizons is not None

    @property
    def needs_stats(self) -> bool:
        return self.learned

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        cut = () if self.constant is None else (self.constant,)
        return frozenset(step_at(f, steps) for f in (*(self.fractions if self.learned else ()), *cut))

    def planned_step(self, steps: int) -> int | None:
        if self.learned:
            return None
        return steps if self.constant is None else step_at(self.constant, steps)

    def decide(self, views: Sequence[GateView]) -> list[Decision]:
        if self.fates is None or self.horizons is None:
            return [self._decision(view, self.constant, None, None) for view in views]
        features = vector.matrix(views, self.reader)
        fates, confidence = self.fates.predict(features)
        edges = self.horizons.upper_edge(self.horizons.predict(features))
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
    """Stops guidance where going on is worth less than the rows it costs.

    `price`: success that one forward evaluation is worth. `earliest`: no handoff before this fraction of the steps.
    `Decision.statistic` is the predicted remaining value V.
    """

    head: ValueHead
    price: float
    earliest: float = 0.0
    source: str = "value"

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        return width in bundle.values

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        price = setting.asked_or_default("row_price")
        return GateResolution(ValueGate(bundle.version, bundle.checkpoints, reader, bundle.values[width], price))

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


@dataclass(frozen=True, slots=True)
class RiskGate(ValueGate):
    """A value gate held back until its loss is certified to stay below a margin (source `risk`)."""

    source: str = "risk"

    @staticmethod
    def held_by(bundle: GateBundle, width: int) -> bool:
        return width in bundle.risk_tests

    @staticmethod
    def resolve(bundle: GateBundle, width: int, setting: GateSettings, reader: TextReader) -> GateResolution:
        margin = setting.asked_or_default("margin")
        confidence = setting.asked_or_default("confidence")
        choice = bundle.risk_tests[width].choose(margin, confidence)
        if choice.setting is None:
            return GateResolution(None, f"risk gate of '{bundle.family}': {choice.refusal}")
        earliest, price = choice.setting
        common = (bundle.version, bundle.checkpoints, reader)
        return GateResolution(RiskGate(*common, bundle.values[width], price, earliest))
