"""What was learned for one constraint family on one model: forests, constant cuts, tests of risk, where they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_models.forest.flat import FlatForest
from gate_models.forest.terciles import bins
from gate_models.forest.value_head import ValueHead
from gate_models.gates.learned.regime import AuditedRegime
from gate_models.statistics.fixed_sequence import FixedSequenceTest


@dataclass(frozen=True, slots=True)
class FateHead:
    """The fate head, compiled."""

    classes: tuple[str, ...]
    forest: FlatForest

    def predict(self, features: NDArray[np.float32]) -> tuple[list[str], NDArray[np.float64]]:
        """The most probable fate of each row, and its probability [n]."""
        shares = self.forest.predict(features)
        best = shares.argmax(1)
        return [self.classes[index] for index in best], shares[np.arange(len(best)), best]


@dataclass(frozen=True, slots=True)
class HorizonHead:
    """The ordinal head, compiled."""

    forest: FlatForest
    shift: float
    edges: tuple[float, float, float]
    """Upper edges of the terciles of the training horizons."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """The shifted horizon a_hat [n], a fraction of the steps."""
        return self.forest.predict(features)[:, 0] + self.shift

    def upper_edge(self, horizons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Upper edge of the tercile [n] that each horizon falls into."""
        edges = np.array(self.edges)
        upper: NDArray[np.float64] = edges[bins(horizons, edges)]
        return upper


@dataclass(frozen=True, slots=True)
class GateBundle:
    """The gates of one family. Mappings by tail width K; a missing head means that the data could not train it."""

    regime: AuditedRegime
    model: str
    version: str
    """Short digest of what it was trained from."""
    checkpoints: tuple[float, ...]
    """Fractions of the steps before which the gates decide."""
    constants: Mapping[int, float | None]
    """The paper's constant cut, searched to 0.9; None: `never`."""
    fates: FateHead | None
    horizons: HorizonHead | None
    values: Mapping[int, ValueHead]
    risk_tests: Mapping[int, FixedSequenceTest]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained: prompts and rows by split, accuracy, seed, data hash, code version."""

    @property
    def family(self) -> str:
        return self.regime.family
