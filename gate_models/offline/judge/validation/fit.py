"""Learn the judge from labels: logistic regression over standardised features, its threshold from held-out folds.

A text is one row, so that no two labels of a text are ever on both sides of a fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import StratifiedKFold

from gate_models.offline.judge.model.weights import Weights
from gate_models.offline.judge.validation.agreement import Verdicts

STRENGTH: Final = 0.1
"""Inverse strength of the quadratic penalty."""
FOLDS: Final = 10
INNER: Final = 5
"""Folds within the training part, for the threshold."""
REPEATS: Final = 10
GRID: Final = np.linspace(0.05, 0.95, 91)

Matrix = NDArray[np.float64]


def fit(matrix: Matrix, target: Verdicts, features: Sequence[str], seed: int = 0) -> Weights:
    """Weights on all rows [n, F]; the threshold is that of the best kappa on predictions of folds left out."""
    mean, deviation = matrix.mean(0), matrix.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    weight, intercept = _regression((matrix - mean) / deviation, target)
    return Weights(
        features=tuple(features),
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        weight=tuple(weight.tolist()),
        intercept=intercept,
        threshold=best_threshold(left_out(matrix, target, target, INNER, seed), target),
    )


def cross_validate(
    matrix: Matrix, target: Verdicts, strata: NDArray[np.int64], repeats: int = REPEATS
) -> tuple[Matrix, Verdicts]:
    """Probabilities and verdicts [R, n], each of a judge that saw neither the text nor, for its threshold, its fold."""
    probabilities = np.zeros((repeats, len(target)))
    decided = np.zeros((repeats, len(target)), bool)
    for r in range(repeats):
        for train, test in _folds(strata, FOLDS, r):
            judge = fit(matrix[train], target[train], (), seed=r)
            probabilities[r, test] = judge.probabilities(matrix[test])
            decided[r, test] = probabilities[r, test] >= judge.threshold
    return probabilities, decided


def left_out(
    matrix: Matrix, target: Verdicts, strata: NDArray[np.int64] | Verdicts, folds: int, seed: int
) -> NDArray[np.float64]:
    """Probability [n] of each row by a fit on the other folds."""
    probabilities = np.zeros(len(target))
    for train, test in _folds(strata, folds, seed):
        mean, deviation = matrix[train].mean(0), matrix[train].std(0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        weight, intercept = _regression((matrix[train] - mean) / deviation, target[train])
        probabilities[test] = 1.0 / (1.0 + np.exp(-((matrix[test] - mean) / deviation @ weight + intercept)))
    return probabilities


def best_threshold(probabilities: NDArray[np.float64], target: Verdicts) -> float:
    """The probability that accepts with the highest kappa; of a plateau, its middle."""
    kappas = np.array([cohen_kappa_score(target, probabilities >= threshold) for threshold in GRID])
    best = GRID[kappas >= np.nanmax(kappas) - 1e-9]
    return float(round(best[len(best) // 2], 3))


def _regression(scaled: Matrix, target: Verdicts) -> tuple[NDArray[np.float64], float]:
    model = LogisticRegression(C=STRENGTH, max_iter=2000).fit(scaled, target)
    return model.coef_[0], float(model.intercept_[0])


def _folds(
    strata: NDArray[np.int64] | Verdicts, folds: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Indices of the training and the test part. A stratum smaller than the number of folds is spread as it can."""
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return list(split.split(np.zeros(len(strata)), strata))
