"""The `constant` gate: one calibrated cut a family, valid in the regime that it was measured in and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from decoding import policy as policies
from decoding.gating import BuiltinGates, FractionGate, GateChoice, NeverGate, Regime

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
    path = Path(str(files("gate_models"))) / "artifacts" / "constants.json"
    return read_cuts(path) if path.is_file() else []


def read_cuts(path: Path) -> list[ConstantCut]:
    """Read a file of cuts. Raises `ValueError` that names the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} is not {FORMAT}")
        return [ConstantCut(Regime(**cut["regime"]), cut["fraction"], cut["evidence"]) for cut in content["cuts"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of constant cuts: {error}") from None


def write_cuts(cuts: list[ConstantCut], path: Path) -> None:
    """Write cuts as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, "cuts": [asdict(cut) for cut in cuts]}, indent=1) + "\n")


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
    builtin: BuiltinGates = field(default_factory=BuiltinGates)

    def resolve(self, setting: policies.Gate, regime: Regime) -> GateChoice:
        """The gate for `setting` in `regime`; a cut of another family or regime is never borrowed."""
        if setting.source != "constant" or regime.family is None:
            return self.builtin.resolve(setting, regime)
        own = [cut for cut in self.cuts if cut.regime.family == regime.family]
        if not own:
            return self.builtin.resolve(setting, regime)
        nearest = min(own, key=lambda cut: len(_differences(cut.regime, regime)))
        differing = _differences(nearest.regime, regime)
        if differing:
            reason = f"the constant cut of '{regime.family}' was measured at other values of {', '.join(differing)}"
            return GateChoice(None, reason, asdict(nearest.regime))
        if nearest.fraction is None:
            return GateChoice(NeverGate(source="constant", version=version_of(nearest)))
        return GateChoice(FractionGate(nearest.fraction, source="constant", version=version_of(nearest)))


def _differences(a: Regime, b: Regime) -> list[str]:
    return [item.name for item in fields(Regime) if getattr(a, item.name) != getattr(b, item.name)]
