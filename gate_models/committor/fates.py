"""What guidance does for a prompt (helps, harms, is not needed, ...): a fate, read off success rates along a sweep.

The paper leaves the order of the tests open; ours, and the rules it does not spell out, stand at each function. Rates
are compared with a slack of 1e-9, so that 0.9 - 0.8 counts as 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLACK: Final = 1e-9
BASE_AT_LEAST: Final = 0.9
"""q0 from which a state counts as committed."""
GAP: Final = 0.1
"""qg - q0 above which guidance is still needed, and by which it helps or harms."""
BORN_IN: Final = 0.8
"""Success without guidance from which a prompt is born in."""

HANDOFF_FATES: Final = ("preformed", "handoff", "redundant-drop", "persistent-dependent", "harmful", "failure")
CENSORED: Final = ("persistent-dependent", "failure")
"""Fates without a preterminal horizon (Table 1's a* = T)."""
GUIDANCE_FATES: Final = ("needs-CFG", "born-in", "harmful", "hopeless", "residual")


def safe_points(base: NDArray[np.float64], guided: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where q0 >= 0.9 and qg - q0 <= 0.1, elementwise."""
    return np.asarray((base >= BASE_AT_LEAST - SLACK) & (guided - base <= GAP + SLACK))


def persistent_point(base: NDArray[np.float64], guided: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the earliest grid point that is safe together with every later one; F where there is none (censored).

    `base`, `guided`: q0 and qg [..., F] along the grid. The freeze estimator of Appendix C.
    """
    return persistent(safe_points(base, guided))


def persistent(safe: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Index of the earliest of the points [..., F] from which all are safe; F where the last is not."""
    from_here_on = np.logical_and.accumulate(np.flip(safe, -1), -1)
    earliest: NDArray[np.int64] = safe.shape[-1] - from_here_on.sum(-1)
    return earliest


def last_peak(base: NDArray[np.float64]) -> int:
    """Index of the highest q0 [F] along the grid; of equal ones the last."""
    return base.size - 1 - int(base[::-1].argmax())


def handoff_fates(base: NDArray[np.float64], guided: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index into `HANDOFF_FATES` for q0 and qg [..., F] along the freeze grid.

    Without a persistent safe point: persistent-dependent where the last gap qg - q0 exceeds 0.1, else failure.
    Otherwise, in this order: harmful where the mean gap over the grid is below -0.1; preformed where all points are
    safe; handoff where the gap exceeded 0.1 before the safe point; redundant-drop (success came late, not by guidance).
    """
    gap = guided - base
    first = persistent_point(base, guided)
    points = base.shape[-1]
    helped_before = ((gap > GAP + SLACK) & (np.arange(points) < first[..., None])).any(-1)
    tests = [
        (first == points) & (gap[..., -1] > GAP + SLACK),
        first == points,
        gap.mean(-1) < -GAP - SLACK,
        first == 0,
        helped_before,
    ]
    names = ["persistent-dependent", "failure", "harmful", "preformed", "handoff"]
    codes = [HANDOFF_FATES.index(name) for name in names]
    return np.select(tests, codes, HANDOFF_FATES.index("redundant-drop"))


def handoff_fate(base: NDArray[np.float64], guided: NDArray[np.float64]) -> str:
    """The handoff fate of one prompt, from q0 and qg [F]."""
    return HANDOFF_FATES[int(handoff_fates(base, guided))]


def guidance_fate(successes: Mapping[float, tuple[int, int]]) -> str:
    """The guidance fate of one prompt, from (successes, count) of fresh runs at each guidance weight.

    In this order: hopeless with at most one success at every weight; needs-CFG where the best weight gains more than
    0.1 over w = 0; harmful where the largest weight loses more than 0.1; born-in from 0.8 on without guidance; else
    residual. Raises `ValueError` without w = 0 or without a weight above 0.
    """
    if 0.0 not in successes or len(successes) < 2 or any(count < 1 for _, count in successes.values()):
        raise ValueError("a weight sweep needs runs at w = 0 and at one weight above it")
    rates = {weight: hits / count for weight, (hits, count) in successes.items()}
    base = rates.pop(0.0)
    if all(hits <= 1 for hits, _ in successes.values()):
        return "hopeless"
    if max(rates.values()) - base > GAP + SLACK:
        return "needs-CFG"
    if rates[max(rates)] - base < -GAP - SLACK:
        return "harmful"
    return "born-in" if base >= BORN_IN - SLACK else "residual"
