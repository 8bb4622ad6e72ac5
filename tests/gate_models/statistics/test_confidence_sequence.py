"""Bounds that hold at every moment, and bets on a change whose gain cannot be expected."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from gate_models.statistics.confidence_sequence import PATIENCE, ChangeTest, ConfidenceSequence, later_share

MARGIN, ERROR = 0.03, 0.05


def limit(streams: int, error: float = ERROR) -> float:
    """An error rate that is kept is exceeded by its estimate with probability 0.0013."""
    return error + 3 * math.sqrt(error * (1 - error) / streams)


@pytest.mark.parametrize("probabilities", [(0.03, 0.97, 0.0), (0.3, 0.2, 0.5)])
def test_the_interval_holds_at_every_moment_in_95_of_100_streams(probabilities):
    rng = np.random.default_rng(0)
    mean = probabilities[2] - probabilities[0]
    missed = 0
    for _ in range(100):
        sequence, right = ConfidenceSequence(), True
        for value in rng.choice([-1.0, 0.0, 1.0], 150, p=probabilities):
            sequence.add(value)
            right &= sequence.low < mean < sequence.high
        missed += not right
    assert missed / 100 <= limit(100)


def test_the_interval_narrows_around_the_mean_and_is_symmetric():
    rng = np.random.default_rng(1)
    values = rng.uniform(-0.6, 0.4, 2000)
    one, other = ConfidenceSequence(), ConfidenceSequence()
    assert (one.low, one.high, one.count, one.mean) == (-1.0, 1.0, 0, 0.0)
    widths = []
    for value in values:
        one.add(value)
        other.add(-value)
        widths.append(one.high - one.low)
        assert (other.low, other.high) == (-one.high, -one.low)
        assert one.low < one.mean < one.high
    assert 0.1 > widths[-1] > 0.02
    assert widths[99] > 2 * widths[-1]
    assert one.low < -0.1 < one.high
    assert one.mean == pytest.approx(values.mean())


def test_a_bound_that_matters_is_exact_and_others_are_rounded_outwards():
    exact, rounded = ConfidenceSequence(at=[-0.0311]), ConfidenceSequence()
    while exact.low < -0.0311:
        assert exact.low <= rounded.low or exact.low == pytest.approx(-0.0311)
        for sequence in (exact, rounded):
            sequence.add(0.0)
    assert exact.low == -0.0311
    assert rounded.low == -0.0325


def test_when_the_mean_moves_the_interval_is_of_the_average_and_follows():
    sequence = ConfidenceSequence()
    for value in [0.5] * 300 + [-0.5] * 900:
        sequence.add(value)
        assert sequence.low < sequence.mean < sequence.high
    assert -0.35 < sequence.low < sequence.mean < sequence.high < -0.15


@pytest.mark.parametrize("value", [1.5, -1.01, math.nan])
def test_bad_values_and_settings_are_refused(value):
    with pytest.raises(ValueError, match="-1 to 1"):
        ConfidenceSequence().add(value)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            ConfidenceSequence(confidence)


def test_bets_on_later_changes_add_up_to_one():
    shares = [later_share(value) for value in range(200_000)]
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    assert sum(shares) < 1.0
    assert sum(shares[:PATIENCE]) == pytest.approx(0.5)


def test_the_change_test_cannot_expect_to_gain():
    """Exactly, over all courses of seven values with mean -0.03: what is held and what is not yet bet make 1."""
    first, chances, longest = 0.25, {-1: 0.13, 0: 0.77, 1: 0.10}, 7
    expected = 0.0
    for course in product(chances, repeat=longest):
        test = ChangeTest(-MARGIN, first=first)
        for value in course:
            test.add(value)
        expected += math.prod(chances[value] for value in course) * float(test.wealths.sum())
    unbet = (1 - first) * (1 - sum(later_share(value) for value in range(longest)))
    assert expected + unbet == pytest.approx(1.0, abs=1e-12)
