"""Cross-fitting removes planted optimism; half-splits follow their law; coupled cells stay paired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gate_models.committor.crossfit import FreezeCounts, cross_fit, cross_fit_all, half_splits
from gate_models.offline.census.noninferiority import noninferiority
from gate_models.statistics.bootstrap import bootstrap

GRID = (3, 6, 10, 14, 19, 29, 38)


def prompt(rng: np.random.Generator, key: str, q0: list[float], qg: list[float], count: int = 24) -> FreezeCounts:
    counts = np.full(len(q0), count)
    steps = GRID[: len(q0)]
    return FreezeCounts(key, steps, 64, rng.binomial(count, q0), rng.binomial(count, qg), counts, counts)


def test_planted_optimism_is_removed() -> None:
    """Base success is 0.88 at every point: each prompt's best-looking point looks better, and so does the point that is
    chosen as a*. Cross-fitted, both are worth 0.88 (99 % interval).
    """
    rng = np.random.default_rng(1)
    values = cross_fit_all([prompt(rng, f"p{i}", [0.88] * 7, [0.88] * 7) for i in range(400)], 0, 60)
    oracle = bootstrap(np.array([value.oracle for value in values]), confidence=0.99)
    assert oracle.low <= 0.88 <= oracle.high
    assert np.mean([value.oracle_plug_in for value in values]) > 0.88 + 0.05
    assert np.mean([value.oracle_optimism for value in values]) > 0.05
    chosen = bootstrap(np.array([value.handoff for value in values]), confidence=0.99)
    assert chosen.low <= 0.88 <= chosen.high
    assert np.mean([value.plug_in_handoff for value in values if value.index < 7]) > 0.88 + 0.02


def test_the_cross_fitted_difference_is_unbiased() -> None:
    """Where handing off costs nothing at any point, the difference is 0 on average, whatever the selection."""
    rng = np.random.default_rng(2)
    prompts = [prompt(rng, f"p{i}", [0.93] * 5, [0.93] * 5) for i in range(400)]
    row = noninferiority(cross_fit_all(prompts, 0, 40))
    plug_in = np.mean([v.plug_in_handoff - v.plug_in_full for v in cross_fit_all(prompts, 0, 40)])
    assert row.difference.low <= 0.0 <= row.difference.high
    assert row.optimism > 0.005
    assert plug_in > row.difference.value


def test_a_half_split_is_hypergeometric_and_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    counts = prompt(rng, "p", [0.6], [0.9])
    halves = half_splits(counts, 4000, rng)
    k = int(counts.base[0])
    assert np.allclose((halves.base_selection + halves.base_evaluation) * 12, k)
    support = np.arange(13)
    law = stats.hypergeom(24, k, 12).pmf(support) * 4000
    seen = np.bincount(np.rint(halves.base_selection[:, 0] * 12).astype(int), minlength=13)
    kept = law >= 5
    pooled_seen = np.append(seen[kept], seen[~kept].sum())
    pooled_law = np.append(law[kept], law[~kept].sum())
    assert stats.chisquare(pooled_seen, pooled_law).pvalue > 1e-4
    assert not np.allclose(halves.base_selection[:, 0], halves.guided_selection[:, 0])


@pytest.mark.parametrize(("coupling", "count"), [("common", 24), ("antithetic", 24), ("common", 5)])
def test_coupled_cells_are_split_jointly(coupling: str, count: int) -> None:
    """Arms with equal outcomes have equal halves: independent splits would make differences out of nothing."""
    rng = np.random.default_rng(0)
    outcomes = rng.random((1, 3, count)) < 0.5
    hits = outcomes[0].sum(1)
    sizes = np.full(3, count)
    counts = FreezeCounts("p", GRID[:3], 64, hits, hits, sizes, sizes, np.repeat(outcomes, 2, 0), coupling)  # type: ignore[arg-type]
    halves = half_splits(counts, 50, rng)
    assert (halves.base_selection == halves.guided_selection).all()
    assert (halves.base_evaluation == halves.guided_evaluation).all()
    assert halves.base_selection[:, 0].std() > 0
    with pytest.raises(ValueError, match="keep the outcomes"):
        half_splits(replace(counts, outcomes=None), 5, rng)


def test_mirrored_pairs_stay_in_one_half() -> None:
    pairs = np.repeat(np.arange(6) % 2 == 0, 2)
    outcomes = np.broadcast_to(pairs, (2, 1, 12)).copy()
    sizes, hits = np.full(1, 12), np.full(1, 6)
    halves = half_splits(
        FreezeCounts("p", (3,), 64, hits, hits, sizes, sizes, outcomes, "antithetic"), 50, np.random.default_rng(0)
    )
    assert set((halves.base_selection[:, 0] * 3).round(6).tolist()) <= {0.0, 1.0, 2.0, 3.0}


def test_censored_prompts_count_zero() -> None:
    """Primary estimand: a prompt that never hands off keeps its full-CFG success and a difference of exactly 0."""
    rng = np.random.default_rng(0)
    hopeless = [prompt(rng, f"h{i}", [0.1] * 3, [0.3] * 3) for i in range(20)]
    values = cross_fit_all(hopeless, 0, 50)
    assert {value.difference for value in values} == {0.0}
    row = noninferiority(values)
    assert (row.prompts, row.censored, row.survivors, row.survivor_difference) == (20, 20, 0, None)
    assert row.full == row.handoff > 0.1
    assert row.holds()


def test_a_loss_is_found() -> None:
    """Guidance keeps 10 points over a base that just passes the rule: the noninferiority test must fail."""
    rng = np.random.default_rng(3)
    values = cross_fit_all([prompt(rng, f"p{i}", [0.91] * 4, [0.99] * 4) for i in range(200)], 0, 40)
    row = noninferiority(values)
    assert not row.holds()
    assert row.difference.high < 0
    assert row.survivor_difference is not None
    assert row.survivor_difference.value < row.difference.value


def test_a_prompts_value_depends_on_it_alone() -> None:
    rng = np.random.default_rng(0)
    prompts = [prompt(rng, f"p{i}", [0.9] * 4, [0.95] * 4) for i in range(5)]
    assert cross_fit_all(prompts, 0, 20)[3] == cross_fit_all(prompts[3:], 0, 20)[0]


def test_single_rollouts_cannot_be_split() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="at least two rollouts"):
        cross_fit(prompt(rng, "p", [0.5], [0.5], count=1), rng)
