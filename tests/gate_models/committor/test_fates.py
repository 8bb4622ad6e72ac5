"""Fates by hand-made rates, and the persistent rule against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from gate_models.committor.fates import (
    HANDOFF_FATES,
    guidance_fate,
    handoff_fate,
    handoff_fates,
    persistent_point,
    safe_points,
)

CURVES: dict[str, tuple[list[float], list[float]]] = {
    "preformed": ([0.95, 0.92, 1.0], [0.95, 1.0, 1.0]),
    "handoff": ([0.4, 0.95, 0.95], [0.9, 0.95, 0.9]),
    "redundant-drop": ([0.4, 0.95, 0.95], [0.45, 0.95, 0.95]),
    "persistent-dependent": ([0.95, 0.95, 0.6], [0.95, 0.95, 0.8]),
    "failure": ([0.95, 0.0, 0.0], [0.95, 0.05, 0.1]),
    "harmful": ([0.95, 0.95, 0.95], [0.7, 0.8, 0.9]),
}


@pytest.mark.parametrize("fate", CURVES)
def test_handoff_fates(fate: str) -> None:
    base, guided = (np.array(rates) for rates in CURVES[fate])
    assert handoff_fate(base, guided) == fate


def test_many_prompts_at_once() -> None:
    rates = np.array(list(CURVES.values()))
    codes = handoff_fates(rates[:, 0], rates[:, 1])
    assert [HANDOFF_FATES[code] for code in codes] == list(CURVES)


def test_the_persistent_point_is_the_earliest_that_stays_safe() -> None:
    rng = np.random.default_rng(0)
    base, guided = rng.choice([0.5, 0.9, 1.0], size=(2, 400, 7), p=[0.15, 0.4, 0.45])
    point = persistent_point(base, guided)
    for prompt in range(400):
        safe = [b >= 0.9 and g - b <= 0.1 + 1e-12 for b, g in zip(base[prompt], guided[prompt], strict=True)]
        expected = next((i for i in range(7) if all(safe[i:])), 7)
        assert point[prompt] == expected
    assert {0, 7} < set(point.tolist())


def test_thresholds_are_met_exactly() -> None:
    """q0 = 0.9 and a gap of 0.1 are safe, also where floats say 0.1 + 3e-17."""
    assert safe_points(np.array([0.9]), np.array([1.0]))[0]
    assert safe_points(np.array([22 / 24]), np.array([1.0]))[0]
    assert not safe_points(np.array([21 / 24]), np.array([0.9]))[0]
    assert handoff_fate(np.array([0.3, 0.95]), np.array([0.4, 0.95])) == "redundant-drop"


@pytest.mark.parametrize(
    ("fate", "hits"),
    [
        ("hopeless", {0.0: 0, 1.0: 1, 4.0: 1}),
        ("needs-CFG", {0.0: 10, 1.0: 20, 4.0: 2}),
        ("born-in", {0.0: 22, 1.0: 22, 4.0: 21}),
        ("harmful", {0.0: 22, 1.0: 22, 4.0: 12}),
        ("residual", {0.0: 12, 1.0: 13, 4.0: 12}),
    ],
)
def test_guidance_fates(fate: str, hits: dict[float, int]) -> None:
    assert guidance_fate({weight: (count, 24) for weight, count in hits.items()}) == fate


def test_a_weight_sweep_needs_its_base() -> None:
    with pytest.raises(ValueError, match="w = 0"):
        guidance_fate({1.0: (3, 24), 2.0: (4, 24)})
