"""Fitted backward induction: the value head of one family at one tail width (Longstaff-Schwartz, cross-fitted).

From the last checkpoint to the first, with the later decisions fixed: if a run that stays guided at checkpoint j hands
off next at tau under them (never: V_tau = 0), then what waiting is worth is
    A_j = V_j - V_tau - price (rows of handing off at tau - rows of handing off at j),
whose mean given the prefix is E[C_{j+1} | x_j] - stop_j, because q_g is a martingale under guidance (optional stopping:
the outcomes of the paths are not needed, which takes their noise away). A forest regresses A_j on the features; its
predictions on prompts that it has not seen decide at j. The head that ships is one forest over all checkpoints (the
fraction is a feature), with an output for V and one for each price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GroupKFold

from gate_models.forest.flat import FlatForest
from gate_models.forest.value_head import PRICES, ValueHead
from gate_models.offline.gate_training.dataset import FamilyData

TREES: Final = 200
FOLD_TREES: Final = 60
FOLDS: Final = 4
MIN_LEAF: Final = 5
MIN_PROMPTS: Final = 12


@dataclass(frozen=True, slots=True)
class Induction:
    """What backward induction gives for n runs: features [n, J, D], V [n, J], advantages [n, J, prices]."""

    features: NDArray[np.float32]
    value: NDArray[np.float64]
    advantage: NDArray[np.float64]
    weight: NDArray[np.float64]
    """[n, J]: rollouts behind V."""
    group: NDArray[np.int64]
    """[n]: prompt."""


def induce(data: FamilyData, width: int, runs: NDArray[np.int64], seed: int, n_jobs: int | None = None) -> Induction:
    """Targets of the head from the main runs `runs` of the training prompts. Raises `ValueError` for too few."""
    group = data.prompt[runs]
    value = data.value(width)[group]
    complete = np.isfinite(value).all(1)
    runs, group, value = runs[complete], group[complete], value[complete]
    if np.unique(group).size < MIN_PROMPTS:
        raise ValueError(
            f"'{data.family}' has {np.unique(group).size} training prompts with all cells at K = {width}; a value gate "
            f"needs at least {MIN_PROMPTS}"
        )
    count, points = value.shape
    features, weight = data.features[runs], data.count[group]
    rows = np.array([data.rows(width, int(step)) for step in data.at] + [data.rows(width, None)], dtype=np.float64)
    prices = np.array(PRICES)
    advantage = np.zeros((count, points, prices.size))
    later_value, later_rows = np.zeros((count, prices.size)), np.full((count, prices.size), rows[-1])
    for point in reversed(range(points)):
        here = value[:, point][:, None]
        advantage[:, point] = here - later_value - prices * (later_rows - rows[point])
        predicted = _cross_predict(
            features[:, point], advantage[:, point], weight[:, point], group, seed + point, n_jobs
        )
        stop = predicted <= 0.0
        later_value = np.where(stop, here, later_value)
        later_rows = np.where(stop, rows[point], later_rows)
    return Induction(features, value, advantage, weight, group)


def fit_head(induction: Induction, seed: int, trees: int = TREES, n_jobs: int | None = None) -> ValueHead:
    """The head, one forest over all checkpoints.

    Leaves hold at least 2 * `MIN_LEAF` rows of the training data; a row is one run at one checkpoint, so neighbouring
    checkpoints of few runs can fill a leaf.
    """
    count, points, width = induction.features.shape
    targets = np.concatenate([induction.value[..., None], induction.advantage], -1)
    forest = RandomForestRegressor(
        trees, min_samples_leaf=MIN_LEAF * 2, max_features=1 / 3, random_state=seed, n_jobs=n_jobs
    ).fit(
        induction.features.reshape(-1, width),
        targets.reshape(count * points, -1),
        induction.weight.ravel(),
    )
    return ValueHead(FlatForest.of(forest).rounded())


def _cross_predict(
    features: NDArray[np.float32],
    target: NDArray[np.float64],
    weight: NDArray[np.float64],
    group: NDArray[np.int64],
    seed: int,
    n_jobs: int | None,
) -> NDArray[np.float64]:
    """Predictions [n, prices] of forests that have not seen the prompt."""
    predicted = np.zeros_like(target)
    for train, test in GroupKFold(min(FOLDS, np.unique(group).size)).split(features, groups=group):
        forest = RandomForestRegressor(
            FOLD_TREES, min_samples_leaf=MIN_LEAF, max_features=1 / 3, random_state=seed, n_jobs=n_jobs
        ).fit(features[train], target[train], weight[train])
        predicted[test] = forest.predict(features[test])
    return predicted
