"""Features of where and when the positions of a text were decided (paper Appendix H, "commit-order shape")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from decoding.records.trace import StepStats

NAMES: Final = (
    "order_rank_correlation",
    "order_contiguity",
    "order_runs",
    "order_spread",
    "order_centre",
    "order_first_third",
    "order_last_third",
    "order_span_filled",
    "order_leftmost_open",
)


def commit_order_features(history: Sequence[StepStats], length: int) -> dict[str, float]:
    """The features `NAMES` of a prefix on a canvas of `length` positions; zeros where nothing is committed.

    Rank correlation of commit time and position; share of commits beside an earlier one (or the canvas's edge); maximal
    committed segments per commit; standard deviation, mean and thirds of the committed positions, as shares of the
    canvas; share of the span between first and last committed position that is filled; leftmost open position.
    """
    order = [position for stats in history for position in (*stats.positions, *stats.filled)]
    if not order:
        return dict.fromkeys(NAMES, 0.0)
    at = np.array(order, dtype=np.float64)
    count = len(order)
    taken = np.zeros(length + 2, dtype=bool)  # one sentinel on either side
    taken[[0, -1]] = True
    beside = 0
    for position in order:
        beside += bool(taken[position] or taken[position + 2])
        taken[position + 1] = True
    inner = taken[1:-1]
    runs = int(np.count_nonzero(inner & ~np.concatenate(([False], inner[:-1]))))
    span = at.max() - at.min() + 1.0
    open_ = np.flatnonzero(~inner)
    return {
        "order_rank_correlation": _rank_correlation(at),
        "order_contiguity": beside / count,
        "order_runs": runs / count,
        "order_spread": float(at.std()) / length,
        "order_centre": float(at.mean()) / length,
        "order_first_third": float(np.mean(at < length / 3)),
        "order_last_third": float(np.mean(at >= 2 * length / 3)),
        "order_span_filled": count / span,
        "order_leftmost_open": (float(open_[0]) if open_.size else length) / length,
    }


def _rank_correlation(at: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Spearman's rank correlation of `at` with its index; 0 for fewer than two entries. Positions are distinct."""
    count = at.size
    if count < 2:
        return 0.0
    ranks = np.empty(count)
    ranks[at.argsort(kind="stable")] = np.arange(count)
    gaps = ranks - np.arange(count)
    return float(1.0 - 6.0 * np.dot(gaps, gaps) / (count * (count * count - 1.0)))
