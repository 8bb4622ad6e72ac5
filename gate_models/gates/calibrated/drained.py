"""The `drained` gate at a threshold that was calibrated for its family, in the regime that it was measured in.

Asked for without a threshold, the gate takes the calibrated one: point estimate, or with `margin` the largest threshold
whose loss is certified. Elsewhere (another model, canvas, weight, order, ..., or with re-checks, which no calibration
has) it takes the general default, and its version says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from decoding.gates.builtin import BuiltinGates, DrainedGate
from decoding.gates.protocol import GateResolution, Regime
from decoding.policy.gate import GateSettings
from gate_models.gates.calibrated.files import nearest, read_entries, shipped_file, write_entries

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

    def at_margin(self, margin: float) -> float | None:
        """The certified threshold of the largest tabled margin up to `margin`."""
        usable = [float(eps) for eps in self.certified if float(eps) <= margin + 1e-12]
        return self.certified[f"{max(usable):g}"] if usable else None


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

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The gate for `setting` in `regime`; a threshold of another family or regime is never borrowed."""
        if setting.source != "drained" or setting.threshold is not None:
            return self.builtin.resolve(setting, regime)
        closest = nearest(self.thresholds, regime)
        if closest is None or closest[1] or setting.recheck is not None:
            return self._elsewhere(setting, regime, closest)
        measured = closest[0]
        chosen = measured.threshold if setting.margin is None else measured.at_margin(setting.margin)
        if chosen is not None:
            return GateResolution(DrainedGate(chosen, version=MEASURED))
        return GateResolution(None, _refusal(measured, setting))

    def _elsewhere(
        self, setting: GateSettings, regime: Regime, closest: tuple[DrainedThreshold, list[str]] | None
    ) -> GateResolution:
        """Outside every calibration: the default threshold, which promises no margin."""
        if setting.margin is None:
            return self.builtin.resolve(setting, regime)
        if closest is None:
            whose = "this request, which has no family" if regime.family is None else f"family '{regime.family}'"
            return GateResolution(None, f"no drained threshold is calibrated for {whose}; send gate.threshold instead")
        reason = f"the drained threshold of '{regime.family}' was calibrated at other values of {', '.join(closest[1])}"
        return GateResolution(None, reason, asdict(closest[0].regime))


def _refusal(measured: DrainedThreshold, setting: GateSettings) -> str:
    family, prompts = measured.regime.family, measured.evidence.get("prompts")
    if setting.margin is not None:
        return (
            f"no drained threshold of '{family}' keeps the loss of success below {setting.margin:g} with 95% "
            f"confidence on {prompts} calibration prompts"
        )
    return (
        f"guidance of '{family}' does not drain: handing off lost more than {measured.evidence.get('margin', 0):g} of "
        f"full CFG's success at every threshold that was tried ({prompts} calibration prompts)"
    )
