"""The `constant` gate ends guidance at one step, calibrated for a family in one setting and served in no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from decoding.gates.builtin import BuiltinGates, FractionGate, NeverGate
from decoding.gates.protocol import GateResolution, GateResolver, Regime
from decoding.policy.gate import GateSettings
from gate_models.gates.calibrated.files import nearest, read_entries, shipped_file, write_entries

FORMAT: Final = 1
MEASURED: Final = f"constants-{FORMAT}"


@dataclass(frozen=True, slots=True)
class ConstantCut:
    """A family's cut. `fraction` None: no cut kept the success of full CFG, so guidance stays on (`never`)."""

    regime: Regime
    fraction: float | None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured: prompts, success by cut, seed."""


def version_of(cut: ConstantCut) -> str:
    """Where a cut comes from, for responses: its own version, or that of the measured ones."""
    version: str = cut.evidence.get("version", MEASURED)
    return version


def shipped_cuts() -> list[ConstantCut]:
    """The cuts that the package ships; empty where it ships none."""
    path = shipped_file("constants.json")
    return read_cuts(path) if path.is_file() else []


def read_cuts(path: Path) -> list[ConstantCut]:
    """Read a file of cuts. Raises `ValueError` that names the file and what is wrong with it."""

    def build(cut: Mapping[str, Any]) -> ConstantCut:
        return ConstantCut(Regime(**cut["regime"]), cut["fraction"], cut["evidence"])

    return read_entries(path, "constant cuts", "cuts", FORMAT, build)


def write_cuts(cuts: list[ConstantCut], path: Path) -> None:
    """Write cuts as JSON."""
    write_entries(path, "cuts", FORMAT, cuts)


def earliest_safe(curve: Mapping[float, float], full: float, margin: float) -> float | None:
    """The earliest cut from which every cut on the grid keeps `full` - `margin`; None where the last does not."""
    safe = None
    for cut in sorted(curve, reverse=True):
        if curve[cut] < full - margin:
            break
        safe = cut
    return safe


@dataclass(frozen=True, slots=True)
class ConstantGates:
    """The gates that need no learning, with the calibrated cuts among them (`GateResolver`)."""

    cuts: tuple[ConstantCut, ...]
    below: GateResolver = field(default_factory=BuiltinGates)

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution:
        """The gate for `setting` in `regime`; a cut of another family or regime is never borrowed."""
        closest = nearest(self.cuts, regime) if setting.source == "constant" else None
        if closest is None:
            return self.below.resolve(setting, regime)
        cut, differing = closest
        if differing:
            reason = f"the constant cut of '{regime.family}' was measured at other values of {', '.join(differing)}"
            return GateResolution(None, reason, asdict(cut.regime))
        if cut.fraction is None:
            return GateResolution(NeverGate(source="constant", version=version_of(cut)))
        return GateResolution(FractionGate(cut.fraction, source="constant", version=version_of(cut)))
