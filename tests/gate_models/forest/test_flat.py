"""Compiled forests: equal to scikit-learn's, small on disk, fast enough for a step."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from gate_models.forest.flat import FlatForest


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    trees=st.integers(1, 12),
    leaf=st.integers(1, 9),
    features=st.integers(1, 9),
    outputs=st.integers(1, 3),
    coarse=st.booleans(),
)
def test_regression_equals_scikit_learn(seed, trees, leaf, features, outputs, coarse):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(80, features))
    if coarse:  # many ties: thresholds fall on values
        inputs = inputs.round(1)
    target = rng.normal(size=(80, outputs)) + inputs[:, :1]
    forest = RandomForestRegressor(trees, min_samples_leaf=leaf, random_state=seed).fit(
        inputs, target[:, 0] if outputs == 1 else target
    )
    asked = np.concatenate([inputs, rng.normal(size=(50, features)) * 3]).astype(np.float32)
    expected = forest.predict(asked).reshape(len(asked), outputs)
    assert np.abs(FlatForest.of(forest).predict(asked) - expected).max() <= 1e-12


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), trees=st.integers(1, 9), classes=st.integers(2, 6))
def test_classification_equals_scikit_learn(seed, trees, classes):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(90, 5))
    labels = rng.integers(classes, size=90)
    labels[:classes] = np.arange(classes)
    forest = RandomForestClassifier(trees, random_state=seed).fit(inputs, labels)
    asked = rng.normal(size=(70, 5)).astype(np.float32)
    assert np.abs(FlatForest.of(forest).predict(asked) - forest.predict_proba(asked)).max() <= 1e-12


def forest_of(seed, trees=30):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(300, 8))
    return RandomForestRegressor(trees, min_samples_leaf=3, random_state=0).fit(inputs, inputs[:, 0] * inputs[:, 1])


def test_arrays_round_trip_in_single_precision():
    flat = FlatForest.of(forest_of(0))
    asked = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    restored = FlatForest.restore(flat.arrays("x"), "x")
    assert (restored.predict(asked) == flat.rounded().predict(asked)).all()
    assert np.abs(restored.predict(asked) - flat.predict(asked)).max() < 1e-6


@pytest.mark.parametrize("name", ["feature", "left", "value"])
def test_arrays_that_are_no_forest_are_refused(name):
    arrays = FlatForest.of(forest_of(0, 2)).arrays("x")
    with pytest.raises(KeyError):
        FlatForest.restore({key: value for key, value in arrays.items() if key != f"x.{name}"}, "x")
    arrays[f"x.{name}"] = arrays[f"x.{name}"][:-1]
    with pytest.raises(ValueError, match="forest"):
        FlatForest.restore(arrays, "x")


def test_no_rows_and_more_rows_than_a_tile():
    flat = FlatForest.of(forest_of(2))
    assert flat.predict(np.empty((0, 8), dtype=np.float32)).shape == (0, 1)
    asked = np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32)
    one_by_one = np.concatenate([flat.predict(row[None]) for row in asked])
    assert np.abs(flat.predict(asked) - one_by_one).max() <= 1e-12


@pytest.mark.bench
def test_a_forest_of_400_trees_answers_32_requests_in_about_a_millisecond():
    """Leaves as a gate's heads have them; the limit leaves room for a busy machine."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(900, 70)).astype(np.float32)
    forest = RandomForestRegressor(400, min_samples_leaf=20, max_features=3, random_state=0).fit(inputs, inputs[:, 0])
    flat, asked = FlatForest.of(forest), inputs[:32]
    seconds = []
    for _ in range(60):
        began = time.process_time()
        flat.predict(asked)
        seconds.append(time.process_time() - began)
    print(f"best {min(seconds) * 1e3:.2f} ms, median {np.median(seconds) * 1e3:.2f} ms")
    assert min(seconds) < 0.004
