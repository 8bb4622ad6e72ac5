"""How well learned gates predict when guidance may end: by prompt, across families, and without some features.

Accuracy is not what a gate is for (paper, Finding 2), so it stands beside the policy's outcome and never in its place.
The paper's whole-run features are those of one finished run; the causal ones are rows of every checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from gate_models.features import vector
from gate_models.forest.heads import FOLDS, TREES, FateHeadEstimator, OrdinalHead
from gate_models.forest.terciles import TERCILES, bins
from gate_models.offline.gate_training.dataset import TrainingRows


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Cross-validated accuracy of one variant in one family; None where the family has too few horizons."""

    variant: str
    prompts: int
    """With a horizon."""
    tercile: float | None
    error: float | None
    """Mean absolute error of a_hat."""
    error_of_zero: float | None
    """Of a predictor that says zero for every prompt (the paper's degenerate baseline)."""
    error_of_mean: float | None
    """Of the training folds' mean."""
    fate: float | None
    """Share of runs whose handoff fate is right."""
    fate_of_mode: float | None
    """Of the training folds' most frequent fate."""


def cross_validated(
    rows: TrainingRows,
    variant: str,
    *,
    groups: Iterable[str] | None = None,
    trees: int = TREES,
    seed: int = 0,
    jobs: int = 1,
) -> Accuracy:
    """Accuracy by `GroupKFold(5)` on prompts, with the feature groups `groups` (default: all)."""
    columns = vector.columns(vector.GROUPS if groups is None else groups)
    selected = TrainingRows(rows.features[:, columns], rows.horizon, rows.fate, rows.group, rows.leaf)
    known = selected.of(np.isfinite(selected.horizon))
    tercile, error, zero, mean = _horizon_scores(
        known, OrdinalHead(trees, selected.leaf, random_state=seed, n_jobs=jobs)
    )
    fate, mode = _fate_scores(selected, FateHeadEstimator(trees, selected.leaf, seed, jobs))
    return Accuracy(variant, int(np.unique(known.group).size), tercile, error, zero, mean, fate, mode)


def _horizon_scores(rows: TrainingRows, head: OrdinalHead) -> tuple[float | None, ...]:
    if np.unique(rows.group).size < 2 * FOLDS:
        return None, None, None, None
    hits, errors, means = [], [], []
    for train, test in GroupKFold(FOLDS).split(rows.features, groups=rows.group):
        fitted = clone(head).fit(rows.features[train], rows.horizon[train])
        predicted = fitted.predict(rows.features[test])
        hits.append(bins(predicted, fitted.edges_) == bins(rows.horizon[test], fitted.edges_))
        errors.append(np.abs(predicted - rows.horizon[test]))
        means.append(np.abs(rows.horizon[train].mean() - rows.horizon[test]))
    joined = [float(np.concatenate(parts).mean()) for parts in (hits, errors, means)]
    return joined[0], joined[1], float(np.abs(rows.horizon).mean()), joined[2]


def _fate_scores(rows: TrainingRows, head: FateHeadEstimator) -> tuple[float | None, float | None]:
    if np.unique(rows.group).size < 2 * FOLDS or np.unique(rows.fate).size < 2:
        return None, None
    hits, modes = [], []
    for train, test in GroupKFold(FOLDS).split(rows.features, groups=rows.group):
        names, counts = np.unique(rows.fate[train], return_counts=True)
        fitted = clone(head).fit(rows.features[train], rows.fate[train])
        hits.append(fitted.predict(rows.features[test]) == rows.fate[test])
        modes.append(rows.fate[test] == names[counts.argmax()])
    return float(np.concatenate(hits).mean()), float(np.concatenate(modes).mean())


def leave_one_family_out(
    rows: Mapping[str, TrainingRows], family: str, *, trees: int = TREES, seed: int = 0, jobs: int = 1
) -> Accuracy | None:
    """Trained on every other family, tested on this one; terciles are of the training families. None without others."""
    held_out = rows[family].of(np.isfinite(rows[family].horizon))
    others = [other.of(np.isfinite(other.horizon)) for name, other in rows.items() if name != family]
    others = [other for other in others if other.group.size]
    if not others or not held_out.group.size:
        return None
    known = np.concatenate([other.horizon for other in others])
    head = OrdinalHead(trees, rows[family].leaf, random_state=seed, n_jobs=jobs)
    head.fit(np.concatenate([other.features for other in others]), known)
    predicted = head.predict(held_out.features)
    edges = np.quantile(held_out.horizon, TERCILES)
    return Accuracy(
        variant="leave-one-task-out",
        prompts=int(np.unique(held_out.group).size),
        tercile=float((bins(predicted, edges) == bins(held_out.horizon, edges)).mean()),
        error=float(np.abs(predicted - held_out.horizon).mean()),
        error_of_zero=float(np.abs(held_out.horizon).mean()),
        error_of_mean=float(np.abs(known.mean() - held_out.horizon).mean()),
        fate=None,
        fate_of_mode=None,
    )


def ablation(rows: TrainingRows, *, trees: int = TREES, seed: int = 0, jobs: int = 1) -> list[Accuracy]:
    """All features, the paper's three groups, and all without each group."""
    paper = ("confidence", "entropy", "order")
    variants = {"all": tuple(vector.GROUPS), "paper's (confidence, entropy, order)": paper} | {
        f"without {left}": tuple(name for name in vector.GROUPS if name != left) for left in vector.GROUPS
    }
    return [
        cross_validated(rows, name, groups=groups, trees=trees, seed=seed, jobs=jobs)
        for name, groups in variants.items()
    ]
