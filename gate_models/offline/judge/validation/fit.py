"""Learn the judge from labels: logistic regression over standardised features, its threshold from held-out folds.

A text is one row, so that no two labels of a text are ever on both sides of a fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from gate_models.offline.judge.model.weights import Weights
from gate_models.offline.judge.validation.agreement import Verdicts

STRENGTH: Final = 0.3
"""Inverse strength of the quadratic penalty."""
END_PARTS: Final = 100
"""Principal components of the states at text ends."""
END_STRENGTH: Final = 0.003
NEGLIGIBLE: Final = 1e-6
"""Components of less than this share of the largest variance are rounding."""
FOLDS: Final = 10
INNER: Final = 5
"""Folds within the training part, for the threshold and for the column `end`."""
REPEATS: Final = 10

Matrix = NDArray[np.float64]
States = NDArray[np.float32]
Learner = Callable[[Matrix | States, Verdicts, int], tuple[NDArray[np.float64], float]]
"""Of rows, verdicts and a seed: a direction and an intercept."""


def fit(
    matrix: Matrix, target: Verdicts, features: Sequence[str], seed: int = 0, ends: States | None = None
) -> Weights:
    """Weights on rows [n, F] and states [n, E]; held-out predictions accept the share that the reader accepts.

    The column `end` that the regression sees comes from folds left out, since a reading of its own rows is too sure.
    """
    end_weight: tuple[float, ...] = ()
    end_intercept = 0.0
    if ends is not None:
        matrix = np.column_stack([matrix, left_out(ends, target, seed, _end_direction)])
        direction, end_intercept = _end_direction(ends, target, seed)
        end_weight = tuple(float(f"{value:.6g}") for value in direction)
    mean, deviation = _scale(matrix)
    weight, intercept = _regression((matrix - mean) / deviation, target)
    return Weights(
        features=tuple(features),
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        weight=tuple(weight.tolist()),
        intercept=intercept,
        threshold=fair_threshold(expit(left_out(matrix, target, seed, _direction)), target),
        end_weight=end_weight,
        end_intercept=end_intercept,
    )


def cross_validate(
    matrix: Matrix,
    target: Verdicts,
    strata: NDArray[np.int64],
    repeats: int = REPEATS,
    ends: States | None = None,
) -> tuple[Matrix, Verdicts]:
    """Probabilities and verdicts [R, n], each of a judge that saw neither the text nor, for its threshold, its fold."""
    probabilities = np.zeros((repeats, len(target)))
    decided = np.zeros((repeats, len(target)), bool)
    for r in range(repeats):
        for train, test in _folds(strata, FOLDS, r):
            seen, unseen = (None, None) if ends is None else (ends[train], ends[test])
            judge = fit(matrix[train], target[train], (), seed=r, ends=seen)
            probabilities[r, test] = judge.probabilities(matrix[test], unseen)
            decided[r, test] = probabilities[r, test] >= judge.threshold
    return probabilities, decided


def left_out(rows: Matrix | States, target: Verdicts, seed: int, learn: Learner) -> NDArray[np.float64]:
    """Logit [n] of each of `rows` [n, F] by what the other folds teach."""
    logits = np.zeros(len(target))
    for train, test in _folds(target, INNER, seed):
        direction, intercept = learn(rows[train], target[train], seed)
        logits[test] = rows[test] @ direction + intercept
    return logits


def fair_threshold(probabilities: NDArray[np.float64], target: Verdicts) -> float:
    """Between the texts that are accepted and those that are not, where as many are accepted as the reader accepts."""
    ordered, count = np.sort(probabilities)[::-1], int(target.sum())
    above = ordered[max(count - 1, 0)]
    below = ordered[min(count, len(ordered) - 1)]
    return float(round((above + below) / 2, 4))


def _direction(matrix: Matrix | States, target: Verdicts, seed: int) -> tuple[NDArray[np.float64], float]:
    """Direction [F] and intercept of the regression on features, for rows that are not scaled."""
    mean, deviation = _scale(matrix)
    weight, intercept = _regression((matrix - mean) / deviation, target)
    direction = weight / deviation
    return direction, intercept - float(mean @ direction)


def _end_direction(ends: Matrix | States, target: Verdicts, seed: int) -> tuple[NDArray[np.float64], float]:
    """Direction [E] and intercept: a logistic regression on whitened principal components, written as one product."""
    mean, deviation = _scale(ends)
    parts = PCA(min(END_PARTS, *ends.shape), svd_solver="randomized", random_state=seed)
    reduced = parts.fit_transform((ends - mean) / deviation)
    alive = parts.explained_variance_ > NEGLIGIBLE * parts.explained_variance_.max()
    spread = np.sqrt(parts.explained_variance_[alive])
    model = LogisticRegression(C=END_STRENGTH, max_iter=2000).fit(reduced[:, alive] / spread, target)
    direction = (model.coef_[0] / spread) @ parts.components_[alive] / deviation
    return direction, float(model.intercept_[0] - mean @ direction)


def _scale(matrix: Matrix | States) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation [F] of the rows; 1 in place of a deviation of 0."""
    exact = matrix.astype(np.float64)
    deviation = exact.std(0)
    return exact.mean(0), np.where(deviation > 0, deviation, 1.0)


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
