"""The judge: how probable it is that a strict reader accepts a text.

judge = Judge.load(cache=Path("runs/judge.db"))
[reading] = judge.readable(["A dog runs on the beach."])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.judge.model import weights
from gate_models.offline.judge.model.cache import Cached
from gate_models.offline.judge.model.features import END, FEATURES, matrix
from gate_models.offline.judge.model.files import artifact_folder
from gate_models.offline.judge.model.language_model import INSTALL, LanguageModel, SmolLM2, weights_hash
from gate_models.offline.judge.model.probe import probe_hash, shipped_probe
from gate_models.offline.judge.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Reading:
    """One text: `probability` that a reader accepts it, and whether it counts as readable."""

    probability: float
    readable: bool


class Judge:
    """Scores texts one by one: a reading never depends on the other texts of the call (up to rounding)."""

    def __init__(self, learned: Weights, model: LanguageModel, facts: dict[str, Any] | None = None) -> None:
        """Raises `ValueError` where the weights are for other features than this version computes."""
        expected = (*FEATURES, END) if learned.end_weight else FEATURES
        if learned.features != expected:
            raise ValueError("the judge's file is for other features; make one with astargate judge-fit")
        self.learned = learned
        self.facts = facts or {}
        self._model = model

    @staticmethod
    def load(path: Path | None = None, *, cache: Path | None = None, model: LanguageModel | None = None) -> Judge:
        """The judge in `path` (default: the shipped one). `cache`: where surprisals are kept between runs.

        Raises `MissingExtraError` without the extra `judge`, `ValueError` where the language model is another one than
        the judge was learned with.
        """
        learned, facts = weights.load(path or artifact_folder() / "judge.json")
        if model is None:
            installed = {"language_model": weights_hash(), "probe": probe_hash(shipped_probe())}
            for name, digest in installed.items():
                if facts.get(name) != digest:
                    raise ValueError(
                        f"the judge was learned with {name} {facts.get(name)}, here is {digest}: {INSTALL}, "
                        "or make a judge with astargate judge-fit"
                    )
            model = SmolLM2()
        return Judge(learned, model if cache is None else Cached(model, cache), facts)

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """[n]; an empty text has 0."""
        probabilities = self.learned.probabilities(*matrix(texts, self._model))
        probabilities[[not text.strip() for text in texts]] = 0.0
        return probabilities

    def readable(self, texts: Sequence[str]) -> list[Reading]:
        """A reading of every text."""
        return [Reading(float(p), bool(p >= self.learned.threshold)) for p in self.probabilities(texts)]
