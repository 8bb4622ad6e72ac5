"""The heads keep scikit-learn's conventions; bins and edges are the paper's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gate_models.forest.heads import SHIFT, FateHeadEstimator, OrdinalHead
from gate_models.forest.terciles import bins
from gate_models.gates.learned.bundle import HorizonHead


@pytest.mark.slow
@parametrize_with_checks(
    [FateHeadEstimator(n_estimators=10, min_samples_leaf=1), OrdinalHead(n_estimators=10, min_samples_leaf=1)]
)
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


def test_the_ordinal_head_regresses_shifts_and_bins():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    horizons = np.repeat([0.1, 0.22, 0.45, 0.6], 50)
    inputs[:, 0] = horizons
    head = OrdinalHead(n_estimators=30).fit(inputs, horizons)
    assert head.edges_.tolist() == pytest.approx(np.quantile(horizons, [1 / 3, 2 / 3, 1]).tolist())
    assert head.predict(inputs)[0] == pytest.approx(0.1 + SHIFT, abs=0.06)
    assert bins(np.array([0.0, 0.22, 0.23, 0.45, 0.46, 2.0]), np.array([0.22, 0.45, 0.6])).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    compiled = HorizonHead(head.flat(), head.shift, tuple(head.edges_))
    assert np.abs(compiled.predict(inputs) - head.predict(inputs)).max() <= 1e-12
    assert (compiled.upper_edge(head.predict(inputs)) == head.edges_[head.terciles(inputs)]).all()


def test_the_fate_head_names_its_classes_in_order():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(90, 3)).astype(np.float32)
    fates = np.where(inputs[:, 0] > 0, "handoff", "failure")
    head = FateHeadEstimator(n_estimators=20).fit(inputs, fates)
    assert head.classes_.tolist() == ["failure", "handoff"]
    assert np.abs(head.flat().predict(inputs) - head.predict_proba(inputs)).max() <= 1e-12
    assert (head.predict(inputs) == fates).mean() > 0.9
