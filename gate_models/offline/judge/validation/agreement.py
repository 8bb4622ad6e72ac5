"""How far a judge agrees with readers, and readers with themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from gate_models.offline.judge.labels.sheet import Label

Verdicts = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over some texts; means over repetitions of the cross-validation."""

    texts: int
    reader: float
    """Share that the reader accepts."""
    judge: float
    """Share that the judge accepts."""
    auc: float
    """NaN where the reader accepts all or none."""
    kappa: float
    """Likewise."""


def agreement(target: Verdicts, probabilities: NDArray[np.float64], decided: Verdicts) -> Agreement:
    """`target` [n], `probabilities` and `decided` [R, n] of R repetitions."""
    both = 0 < target.sum() < len(target)
    rounds = range(len(probabilities))
    return Agreement(
        texts=len(target),
        reader=float(target.mean()),
        judge=float(decided.mean()),
        auc=float(np.mean([roc_auc_score(target, probabilities[r]) for r in rounds])) if both else math.nan,
        kappa=float(np.mean([cohen_kappa_score(target, decided[r]) for r in rounds])) if both else math.nan,
    )


def accepted(labels: Iterable[Label]) -> dict[str, bool]:
    """Text id -> whether more than half of its labels accept it. A tie is broken."""
    said: dict[str, list[bool]] = {}
    for label in labels:
        said.setdefault(label.id, []).append(label.label != "broken")
    return {text: sum(votes) * 2 > len(votes) for text, votes in said.items()}


def between_passes(labels: Sequence[Label]) -> dict[str, dict[str, float]]:
    """Kappa of every pair of passes on the texts that both read: of the three labels, and of accepted or not."""
    passes: dict[str, dict[str, str]] = {}
    for label in labels:
        passes.setdefault(f"{label.reader}, pass {label.number}", {})[label.id] = label.label
    pairs = {}
    for (one, first), (two, second) in combinations(sorted(passes.items()), 2):
        shared = sorted(first.keys() & second.keys())
        if not shared:
            continue
        a, b = [first[text] for text in shared], [second[text] for text in shared]
        pairs[f"{one} / {two}"] = {
            "texts": len(shared),
            "kappa": float(cohen_kappa_score(a, b)),
            "kappa_accepted": float(cohen_kappa_score([x != "broken" for x in a], [x != "broken" for x in b])),
        }
    return pairs
