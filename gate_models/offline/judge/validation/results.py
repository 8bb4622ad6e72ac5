"""What a fit of the judge found: the judge, and how far it agrees with the reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gate_models.offline.judge.model.weights import Weights
from gate_models.offline.judge.validation.agreement import Agreement

OUR_TEXTS: Final = "our texts"
HUMAN: Final = "human texts"


@dataclass(frozen=True, slots=True)
class JudgeStudy:
    """Everything that the report shows."""

    weights: Weights
    overall: dict[str, Agreement]
    """All, our texts, human texts."""
    families: dict[str, Agreement]
    policies: dict[str, Agreement]
    variants: dict[str, dict[str, Agreement]]
    """Other sets of features: name -> all and our texts."""
    passes: dict[str, dict[str, float]]
    labels: dict[str, dict[str, float]]
    """Shares of the three labels, by source."""
    robust: dict[str, float]
    references: float
    """Share of the shipped human references that is readable."""
    facts: dict[str, Any]
