"""Which decoded texts a strict reader would accept, beside texts by people.

The judge says whether a text is *readable*. A readable text whose constraint is met is *accepted*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate_models.offline.judge.model.judge import Judge
from gate_models.offline.judge.model.language_model import missing_packages
from gate_models.offline.judge.validation.robustness import references
from gate_models.statistics.intervals import wilson


@dataclass(frozen=True, slots=True)
class Readability:
    """The judge of an evaluation."""

    judge: Judge

    @staticmethod
    def load(mode: str, cache: Path | None = None) -> Readability | None:
        """`off`: None; `auto`: None where the extra `judge` is not installed; `on` raises `MissingExtraError`."""
        if mode == "off" or (mode == "auto" and missing_packages()):
            return None
        return Readability(Judge.load(cache=cache))

    def figures(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Shares of `samples` (their `text`, `satisfied`) that are readable, and accepted, with a 95 % interval."""
        readable = np.array([reading.readable for reading in self.judge.readable([s["text"] for s in samples])])
        accepted = int((readable & np.array([sample["satisfied"] for sample in samples])).sum())
        return {
            "readable": float(readable.mean()),
            "accepted": accepted / len(samples),
            "accepted_interval_95": list(wilson(accepted, len(samples))),
        }

    def people(self) -> dict[str, Any]:
        """The share of 300 sentences by people (CommonGen's dev split) that the judge found readable when made."""
        return {"readable": self.judge.facts["references_readable"], "samples": len(references())}
