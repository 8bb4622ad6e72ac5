"""Coverage of every interval that is reported: exact where it can be enumerated, else simulated with a fixed seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gate_models.statistics.bootstrap import bootstrap
from gate_models.statistics.intervals import mean_interval, newcombe, paired_newcombe, proportion, welch

N = 24


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.95, 0.95), (0.98, 0.8), (0.2, 0.1)])
def test_newcombe_covers_as_it_says(p: float, q: float) -> None:
    """Exact coverage over both binomials, at the N of a census."""
    mass = np.outer(stats.binom.pmf(range(N + 1), N, p), stats.binom.pmf(range(N + 1), N, q))
    covered = 0.0
    for i in range(N + 1):
        for j in range(N + 1):
            if mass[i, j] > 1e-9:
                interval = newcombe((i, N), (j, N))
                covered += mass[i, j] * (interval.low <= p - q <= interval.high)
    assert 0.93 <= covered <= 0.998  # conservative near 0 and 1


def test_newcombes_published_example() -> None:
    """56/70 against 48/80: 0.0524 to 0.3339 (Newcombe 1998, Table II, method 10)."""
    interval = newcombe((56, 70), (48, 80))
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_paired_intervals_cover_and_use_the_pairing(shared: float) -> None:
    rng = np.random.default_rng(0)
    covered, widths = 0, []
    for _ in range(600):
        together = rng.random(N) < shared
        base, other = rng.random((2, N))
        guided_u = np.where(together, base, other)
        interval = paired_newcombe(guided_u < 0.85, base < 0.7)
        covered += interval.low <= 0.15 <= interval.high
        widths.append(interval.high - interval.low)
    assert 0.93 <= covered / 600 <= 0.995
    independent = newcombe((20, N), (17, N))
    assert (np.mean(widths) < 0.85 * (independent.high - independent.low)) == (shared > 0)


def test_paired_arms_must_match() -> None:
    with pytest.raises(ValueError, match="equal counts"):
        paired_newcombe(np.ones(3, bool), np.ones(4, bool))


def test_graded_means_cover() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(500):
        interval = welch(rng.beta(2, 1, N), rng.beta(1, 2, N))
        covered += interval.low <= 1 / 3 <= interval.high
    assert 0.93 <= covered / 500 <= 0.97


def test_no_spread_is_no_certainty() -> None:
    assert mean_interval(np.zeros(12)).high == pytest.approx(0.25)
    assert welch(np.ones(12), np.ones(12)).low == pytest.approx(-0.25)
    assert proportion(0, 24).high > 0.1
    with pytest.raises(ValueError, match="empty cell"):
        proportion(0, 0)


def test_the_prompt_bootstrap_covers_as_it_says() -> None:
    """Differences as a census has them: most prompts censored at 0, the others spread."""
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(400):
        values = np.where(rng.random(100) < 0.4, 0.0, rng.normal(-0.02, 0.1, 100))
        interval = bootstrap(values, seed=trial, replicates=400)
        covered += interval.low <= -0.012 <= interval.high
    assert 0.915 <= covered / 400 <= 0.975


def test_the_bootstrap_resamples_prompts() -> None:
    values = np.repeat([0.0, 1.0], 50)
    interval = bootstrap(values)
    assert (interval.high - interval.low) == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert bootstrap(values) == interval
    with pytest.raises(ValueError, match="no prompts"):
        bootstrap(np.empty(0))
