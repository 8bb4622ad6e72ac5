"""The `drained` gate at a threshold that was calibrated for its family, in the regime that it was measured in.

Asked for without a threshold, the gate takes the calibrated one: point estimate, or with `margin` the largest threshold
whose loss is certified. Elsewhere (another canvas, weight, order, ...) it takes the model's pooled threshold, or the
cautious one of a model that was not measured (`pooled.py`). A gate with re-checks, which no measurement has, takes the
general default. The gate's version says which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from decoding.gates.builtin import BuiltinGates, DrainedGate
from decoding.gates.protocol import GateResolution, MeasuredLoss, Regime
from decoding.policy.gate import GateSettings
from gate_models.gates.calibrated.files import nearest, read_entries, shipped_file, write_entries
from gate_models.gates.calibrated.pooled import POOLED, UNMEASURED, PooledThreshold, unmeasured

__all__ = ["MEASURED", "DrainedGates", "DrainedThreshold", "read_thresholds", "shipped_thresholds", "write_thresholds"]
FORMAT: Final = 1
MEASURED: Final = f"drained-{FORMAT}"
"""Version of a gate at a calibrated threshold; at the general default it is "builtin"."""


@dataclass(frozen=True, slots=True)
class DrainedThreshold:
    """A family's threshold on one canvas, order and tail width.

    `threshold` None: handing off lost more than `evidence["margin"]` even at the smallest one of the grid, so guidance
    is never taken as drained.
    """

    regime: Regime
    threshold: float | None
    certified: Mapping[str, float | None] = field(default_factory=dict)
    """By margin: the largest threshold whose loss is below it with 95 % confidence (fixed-sequence testing)."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured: prompts, samples, loss and rows by threshold, seed."""

    @property
    def refuted(self) -> Mapping[str, Any] | None:
        """The audit that showed the threshold to lose success for certain (its interval is above 0); None: none did."""
        reading = self.evidence.get("audit")
        return reading if reading is not None and reading["loss_interval_95"][0] > 0.0 else None

    @property
    def served(self) -> float | None:
        """The threshold of a request that names no margin; None where nothing drains, or the audit refuted it."""
        return self.threshold if self.refuted is None else None

    def at_margin(self, margin: float) -> float | None:
        """The certified threshold of the largest tabled margin up to `margin`."""
        usable = [float(eps) for eps in self.certified if float(eps) <= margin + 1e-12]
        return self.certified[f"{max(usable):g}"] if usable else None

    def measured(self, threshold: float) -> MeasuredLoss | None:
        """What `threshold` lost: on audit prompts where it was audited, else on those that chose it."""
        reading = self.evidence.get("audit") if threshold == self.threshold else None
        if reading is not None:
            return _loss(reading, reading["texts"])
        reading = self.evidence.get("curve", {}).get(f"{threshold:g}")
        if reading is None:
            return None
        return _loss(reading, self.evidence["prompts"] * self.evidence.get("samples", 1))


def _loss(reading: Mapping[str, Any], pairs: int) -> MeasuredLoss:
    low, high = reading["loss_interval_95"]
    return MeasuredLoss(reading["loss"], low, high, pairs)


def shipped_thresholds() -> list[DrainedThreshold]:
    """The thresholds that the package ships; empty where it ships none."""
    path = shipped_file("drained.json")
    return read_thresholds(path) if path.is_file() else []


def read_thresholds(path: Path) -> list[DrainedThreshold]:
    """Read a file of thresholds. Raises `ValueError` that names the file and what is wrong with it."""
    return read_entries(path, "drained thresholds", "thresholds", FORMAT, _entry)


def write_thresholds(thresholds: list[DrainedThreshold], path: Path) -> None:
    """Write thresholds as JSON, one a line."""
    write_entries(path, "thresholds", FORMAT, thresholds, indent=None)


def _entry(content: Mapping[str, Any]) -> DrainedThreshold:
    regime = Regime(**content["regime"])
    return DrainedThreshold(regime, content["threshold"], content["certified"], content["evidence"])


@dataclass(frozen=True, slots=True)
class DrainedGates:
    """The gates that need no learning, `drained` ones at their calibrated thresholds (`GateResolver`)."""

    thresholds: tuple[DrainedThreshold, ...]
    builtin: BuiltinGates = field(default_factory=BuiltinGates)
    pooled: tuple[PooledThreshold, ...] = ()
    """By model, the first of a hash counts."""

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The gate for `setting` in `regime`; a threshold of another family or regime is never borrowed."""
        if setting.source != "drained" or setting.threshold is not None:
            return self.builtin.resolve(setting, regime)
        closest = nearest(self.thresholds, regime)
        if closest is None or closest[1] or setting.recheck is not None:
            return self._elsewhere(setting, regime, closest)
        measured = closest[0]
        chosen = measured.served if setting.margin is None else measured.at_margin(setting.margin)
        if chosen is not None:
            gate = DrainedGate(chosen, version=MEASURED)
            return GateResolution(gate, evidence="audited", measured=measured.measured(chosen))
        return GateResolution(None, _refusal(measured, setting))

    def _elsewhere(
        self, setting: GateSettings, regime: Regime, closest: tuple[DrainedThreshold, list[str]] | None
    ) -> GateResolution:
        """Outside every calibration: a threshold that promises no margin."""
        if setting.margin is None:
            if setting.recheck is not None:
                return self.builtin.resolve(setting, regime)
            pooled = next((one for one in self.pooled if one.model_hash == regime.model_hash), None)
            if pooled is None:
                return GateResolution(UNMEASURED, unmeasured(regime.model_hash))
            return _at_pooled(pooled, regime)
        if closest is None:
            whose = "this request, which has no family" if regime.family is None else f"family '{regime.family}'"
            return GateResolution(None, f"no drained threshold is calibrated for {whose}; send gate.threshold instead")
        reason = f"the drained threshold of '{regime.family}' was calibrated at other values of {', '.join(closest[1])}"
        return GateResolution(None, reason, asdict(closest[0].regime))


def _at_pooled(pooled: PooledThreshold, regime: Regime) -> GateResolution:
    """The pooled threshold. Outside the settings that it was measured in it serves as well, and nothing is known."""
    if pooled.threshold is None:
        margin = pooled.evidence.get("settings", {}).get("margin", 0)
        return GateResolution(
            None,
            f"no drained threshold was shown to keep this model's loss below {margin:g} over all settings",
        )
    if regime.family is not None and regime.family in pooled.withheld:
        lost = pooled.withheld[regime.family]
        low, high = lost["loss_interval_95"]
        return GateResolution(
            None,
            f"the pooled drained threshold is withheld from family '{regime.family}': there it lost {lost['loss']:.2f} "
            f"[{low:.2f}, {high:.2f}] of the success on {lost['pairs']} pairs",
        )
    gate = DrainedGate(pooled.threshold, pooled.earliest, version=POOLED)
    if outside := pooled.outside(regime):
        return GateResolution(gate, f"the pooled drained threshold was not measured at {', '.join(outside)}")
    return GateResolution(gate, evidence="pooled", measured=pooled.measured)


def _refusal(measured: DrainedThreshold, setting: GateSettings) -> str:
    family, prompts = measured.regime.family, measured.evidence.get("prompts")
    if setting.margin is not None:
        return (
            f"no drained threshold of '{family}' keeps the loss of success below {setting.margin:g} with 95% "
            f"confidence on {prompts} calibration prompts"
        )
    if (audit := measured.refuted) is not None:
        low, high = audit["loss_interval_95"]
        return (
            f"the drained threshold of '{family}' is withheld: on {audit['prompts']} audit prompts it lost "
            f"{audit['loss']:.2f} [{low:.2f}, {high:.2f}] of full CFG's success"
        )
    return (
        f"guidance of '{family}' does not drain: handing off lost more than {measured.evidence.get('margin', 0):g} of "
        f"full CFG's success at every threshold that was tried ({prompts} calibration prompts)"
    )
