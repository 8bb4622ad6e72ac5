"""Two random forests that predict what guidance does for a prompt and when it may end (the paper's, Appendix H.1).

scikit-learn estimators: `__init__` only stores, `fit` returns self, learned attributes end in `_`. Train within a
family, with folds grouped by prompt so that the weight variants of a prompt stay together (`GroupKFold(5)`).
"""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gate_models.forest.flat import FlatForest
from gate_models.forest.terciles import TERCILES, bins

TREES: Final = 400
MIN_LEAF: Final = 5
SHIFT: Final = 0.02
"""Added to the regressed horizon before binning: releasing guidance early is the costlier error."""
FOLDS: Final = 5


class FateHeadEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the handoff fate of a prompt."""

    def __init__(
        self,
        n_estimators: int = TREES,
        min_samples_leaf: int = MIN_LEAF,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on features [n, d] and fates [n]; NaN and infinity are refused."""
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.forest_ = RandomForestClassifier(
            self.n_estimators,
            min_samples_leaf=self.min_samples_leaf,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        ).fit(X, y)
        self.classes_ = self.forest_.classes_
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """[n, classes]: share of the leaves' training samples, averaged over trees."""
        check_is_fitted(self)
        shares: NDArray[np.float64] = self.forest_.predict_proba(validate_data(self, X, reset=False))
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable fate [n]."""
        check_is_fitted(self)
        fates: NDArray[Any] = self.forest_.predict(validate_data(self, X, reset=False))
        return fates

    def flat(self) -> FlatForest:
        """The forest compiled; outputs are the classes in order."""
        check_is_fitted(self)
        return FlatForest.of(self.forest_)


class OrdinalHead(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regresses the horizon a* (a fraction of the steps) and bins the prediction, shifted late, into terciles.

    `edges_` [3] are the upper edges of the terciles of the training labels. `max_features` bounds the features that a
    split looks at (a third: the usual choice for regression forests).
    """

    def __init__(
        self,
        n_estimators: int = TREES,
        min_samples_leaf: int = MIN_LEAF,
        shift: float = SHIFT,
        max_features: float | str = 1 / 3,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf
        self.shift = shift
        self.max_features = max_features
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on features [n, d] and horizons [n]; NaN and infinity are refused."""
        X, y = validate_data(self, X, y, y_numeric=True)
        self.forest_ = RandomForestRegressor(
            self.n_estimators,
            min_samples_leaf=self.min_samples_leaf,
            max_features=self.max_features,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        ).fit(X, y)
        self.edges_ = np.quantile(np.asarray(y, dtype=np.float64), (*TERCILES, 1.0))
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The shifted horizon a_hat [n]."""
        check_is_fitted(self)
        horizons: NDArray[np.float64] = self.forest_.predict(validate_data(self, X, reset=False))
        return horizons + self.shift

    def terciles(self, X: Any) -> NDArray[np.int64]:
        """The tercile [n] of a_hat: 0, 1 or 2."""
        return bins(self.predict(X), self.edges_)

    def flat(self) -> FlatForest:
        """The forest compiled, without the shift."""
        check_is_fitted(self)
        return FlatForest.of(self.forest_)
