"""The gates that a model gets: those of the package, and those of a folder of the operator's own.

The chain is the same for the server and for offline runs: learned gates, below them constant cuts, below them drained
thresholds (calibrated in one setting, then pooled over all), below them the gates that need no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from decoding.models.protocol import DenoisingModel, ModelSpec
from gate_models.features.argmax_fill import TextReader
from gate_models.gates.calibrated.constant import ConstantCut, ConstantGates, shipped_cuts
from gate_models.gates.calibrated.drained import DrainedGates, DrainedThreshold, shipped_thresholds
from gate_models.gates.calibrated.files import shipped_file
from gate_models.gates.calibrated.paper_constants import paper_constants
from gate_models.gates.calibrated.pooled import PooledThreshold, shipped_pooled
from gate_models.gates.learned import artifact
from gate_models.gates.learned.audit_report import AuditReport
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.resolver import LearnedGates


@dataclass(frozen=True, slots=True)
class Calibrations:
    """What was measured without learning a gate: in one regime each, or over many settings together."""

    cuts: tuple[ConstantCut, ...]
    thresholds: tuple[DrainedThreshold, ...]
    pooled: tuple[PooledThreshold, ...] = ()

    @staticmethod
    def shipped(spec: ModelSpec, folder: Path | None = None) -> Calibrations:
        """Those of the package, with the paper's own cuts where `spec` is the paper's model; before them the pooled
        thresholds in `folder`. Raises `ValueError` where a file of thresholds is none.
        """
        cuts = (*shipped_cuts(), *paper_constants(spec))
        return Calibrations(cuts, tuple(shipped_thresholds()), shipped_pooled(folder))

    def pooled_of(self, model_hash: str) -> PooledThreshold | None:
        """The pooled threshold of a model: the operator's before the package's."""
        return next((one for one in self.pooled if one.model_hash == model_hash), None)

    def resolver(self) -> ConstantGates:
        """Cuts over thresholds over the gates that need no data."""
        return ConstantGates(self.cuts, DrainedGates(self.thresholds, pooled=self.pooled))


def shipped_folder() -> Path:
    """Folder of the learned gates that the package ships."""
    return shipped_file("gates")


def gates_for(
    model: DenoisingModel,
    calibrations: Calibrations,
    folder: Path | None = None,
    reports: Mapping[str, AuditReport] = MappingProxyType({}),
) -> LearnedGates:
    """The gates of `folder` and then the package's over `calibrations`. A stored gate that must not be used is left out
    with its reason (`LearnedGates.refused`). `reports`: offline audits by gate version, for the loss in answers.
    """
    stored = [*([] if folder is None else [artifact.load_all(folder)]), _shipped()]
    return LearnedGates(
        [bundle for bundles, _ in stored for bundle in bundles],
        calibrations.resolver(),
        TextReader.of(model.spec, model.codec),
        [reason for _, refused in stored for reason in refused],
        reports,
    )


def shipped_gates(model: DenoisingModel) -> LearnedGates:
    """The package's gates for `model`. One resolver serves all texts of a cell: the engine asks a gate once a step."""
    return gates_for(model, Calibrations.shipped(model.spec))


@cache
def _shipped() -> tuple[list[GateBundle], list[tuple[str, str]]]:
    """The package's learned gates, read once."""
    return artifact.load_all(shipped_folder())
