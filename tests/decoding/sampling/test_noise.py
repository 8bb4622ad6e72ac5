"""Contract 3: noise is a function of its key, one uniform a position, never of a global generator."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from decoding.sampling.noise import ORDER, SAMPLE, NoiseKey


def test_same_key_same_noise_whatever_the_global_generators() -> None:
    first = NoiseKey(7, "rollout", "base@0.30", 3, 1).uniforms(5, 32)
    np.random.seed(1)  # noqa: NPY002  (the point: it must not matter)
    torch.manual_seed(1)
    assert np.array_equal(first, NoiseKey(7, "rollout", "base@0.30", 3, 1).uniforms(5, 32))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 200), st.integers(1, 64), st.integers(1, 64))
def test_a_longer_canvas_keeps_the_noise_of_its_leading_positions(seed: int, step: int, a: int, b: int) -> None:
    short, long = sorted((a, b))
    key = NoiseKey(seed)
    assert np.array_equal(key.uniforms(step, short), key.uniforms(step, long)[:short])


@pytest.mark.parametrize(
    "change",
    [{"seed": 8}, {"purpose": "audit"}, {"arm": "guided@0.30"}, {"rollout": 1}, {"round": 1}],
)
def test_every_part_of_the_key_gives_other_noise(change: dict[str, object]) -> None:
    key = NoiseKey(7, "rollout", "base@0.30", 0, 0)
    other = dataclasses.replace(key, **change)  # type: ignore[arg-type]
    assert not np.intersect1d(key.uniforms(0, 64), other.uniforms(0, 64)).size


def test_steps_and_streams_are_independent_fields() -> None:
    key = NoiseKey(0)
    fields = [key.uniforms(s, 16, stream) for s in range(50) for stream in (SAMPLE, ORDER)]
    values = np.concatenate(fields)
    assert np.unique(values).size == values.size


def test_purpose_and_arm_do_not_run_together() -> None:
    assert not np.array_equal(NoiseKey(0, "ab", "c").uniforms(0, 4), NoiseKey(0, "a", "bc").uniforms(0, 4))


def test_uniform_over_seeds_steps_and_positions() -> None:
    """Kolmogorov-Smirnov at 1e-6 for each way of collecting 4,096 values."""
    by_seed = np.array([NoiseKey(seed).uniforms(0, 1)[0] for seed in range(4096)])
    by_step = np.array([NoiseKey(0).uniforms(step, 1)[0] for step in range(4096)])
    by_position = NoiseKey(0).uniforms(0, 4096)
    for values in (by_seed, by_step, by_position):
        assert values.min() >= 0.0
        assert values.max() < 1.0
        assert stats.kstest(values, "uniform").pvalue > 1e-6
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.08
