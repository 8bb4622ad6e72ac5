"""The fit: it finds what decides, its figures are of texts that it did not see, and its file comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gate_models.offline.judge.labels.sheet import Label
from gate_models.offline.judge.model import weights
from gate_models.offline.judge.validation.agreement import accepted, agreement, between_passes
from gate_models.offline.judge.validation.fit import cross_validate, fair_threshold, fit

RNG = np.random.default_rng(0)
ROWS = 240


def data(strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Three features; the second decides."""
    matrix = RNG.normal(size=(ROWS, 3)) * (1.0, 5.0, 0.1) + (0.0, 20.0, 3.0)
    noise = RNG.logistic(size=ROWS)
    return matrix, (matrix[:, 1] - 20.0) / 5.0 * strength + noise > 0.5


def test_it_weighs_what_decides() -> None:
    matrix, target = data(4.0)
    judge = fit(matrix, target, ("a", "b", "c"))
    assert judge.weight[1] > 1.0 > 3 * max(abs(judge.weight[0]), abs(judge.weight[2]))
    right = (judge.probabilities(matrix) >= judge.threshold) == target
    assert right.mean() >= 0.85


def test_noise_is_not_agreement() -> None:
    """Cross-validation on labels that nothing decides: AUC about one half, which a fit on the same rows exceeds."""
    matrix, target = data(0.0)
    probabilities, decided = cross_validate(matrix, target, target.astype(np.int64), repeats=3)
    measured = agreement(target, probabilities, decided)
    assert abs(measured.auc - 0.5) < 0.12
    assert abs(measured.kappa) < 0.2


def test_a_constant_feature_does_no_harm() -> None:
    matrix, target = data(4.0)
    judge = fit(np.hstack([matrix, np.ones((ROWS, 1))]), target, ("a", "b", "c", "d"))
    assert np.isfinite(judge.probabilities(np.ones((2, 4)))).all()


def test_the_threshold_accepts_as_many_as_the_reader() -> None:
    probabilities = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    assert 0.3 < fair_threshold(probabilities, np.array([0, 0, 0, 1, 1, 1], bool)) <= 0.7
    assert 0.2 < fair_threshold(probabilities, np.array([0, 1, 0, 1, 1, 1], bool)) <= 0.3


def test_the_state_at_the_end_is_read_and_never_of_its_own_row() -> None:
    """States decide where the features say nothing; where nothing decides, 64 of them do not invent agreement."""
    target = RNG.random(ROWS) < 0.4
    matrix, ends = RNG.normal(size=(ROWS, 2)), RNG.normal(size=(ROWS, 64)).astype(np.float32)
    probabilities, decided = cross_validate(matrix, target, target.astype(np.int64), repeats=2, ends=ends)
    assert abs(agreement(target, probabilities, decided).auc - 0.5) < 0.15
    ends[:, 5] += 6.0 * target
    probabilities, decided = cross_validate(matrix, target, target.astype(np.int64), repeats=2, ends=ends)
    assert agreement(target, probabilities, decided).auc > 0.9
    judge = fit(matrix, target, ("a", "b", "end"), ends=ends)
    with pytest.raises(ValueError, match="give `ends`"):
        judge.probabilities(matrix)


def test_the_file_comes_back(tmp_path: Path) -> None:
    matrix, target = data(4.0)
    judge = fit(matrix, target, ("a", "b", "c"))
    judge.save(tmp_path / "judge.json", {"sheet": "0123"})
    again, facts = weights.load(tmp_path / "judge.json")
    assert again == judge
    assert facts == {"sheet": "0123"}
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="is no judge"):
        weights.load(tmp_path / "other.json")


def test_a_tie_of_votes_is_broken() -> None:
    said = [Label("x", 1, "me", "clean"), Label("x", 2, "me", "broken"), Label("y", 1, "me", "acceptable")]
    assert accepted(said) == {"x": False, "y": True}


def test_passes_are_compared_where_both_read() -> None:
    first = [Label(f"{i}", 1, "me", "clean" if i % 2 else "broken") for i in range(10)]
    second = [Label(f"{i}", 2, "me", "acceptable" if i % 2 else "broken") for i in range(8)]
    [comparison] = between_passes([*first, *second]).values()
    assert comparison["texts"] == 8
    assert comparison["kappa_accepted"] == pytest.approx(1.0)
    assert comparison["kappa"] < 1.0
    assert between_passes(first) == {}
