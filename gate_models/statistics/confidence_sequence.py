"""Bounds of a mean that hold at every moment of a growing sample, and a test of a mean that may change on the way.

Both bet as `betting` does (Waudby-Smith & Ramdas 2023): who stakes on "the mean is above m" cannot expect to gain while
it is not, so the wealth ever reaches 1 / error with probability `error` at most, however often one looks (Ville).
Values are in [-1, 1]. Each may depend on the ones before it: "the mean" of several values is then the average of what
each was expected to be, given those before it. That average is what is bounded: a stake s multiplies a martingale by
the product of the values' 1 + s (expected - m), which is at most 1 where the average is at most m (inequality of
means).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.statistics.betting import growths

STAKES: Final = (0.999, 0.5, 0.25, 0.12, 0.06, 0.03)
"""Equally weighted shares: the largest is the best one while pairs hardly ever differ, the small ones as they do."""
PATIENCE: Final = 1000
"""A `ChangeTest` has bet on half of the later changes after so many values."""
_CELLS: Final = 400
"""Cells of the grid of means a unit."""


class LowerBound:
    """The largest m of a grid (steps of 1/400) for which "the mean so far is at most m" is refuted at `error`.

    `at` are further points of the grid: where such a point is refuted, the bound says so exactly; elsewhere it is
    rounded down. Wealth falls as m grows, so every smaller mean is refuted with it.
    """

    def __init__(self, error: float, *, at: Sequence[float] = ()) -> None:
        self._grid = np.unique([*(np.arange(1 - _CELLS, _CELLS) / _CELLS), *at])
        self._logs = np.full((len(STAKES), self._grid.size), -math.log(len(STAKES)))
        self._needed = -math.log(error)
        self._refuted = 0

    @property
    def bound(self) -> float:
        """-1 where nothing is refuted."""
        return float(self._grid[self._refuted - 1]) if self._refuted else -1.0

    def add(self, value: float) -> None:
        """One more value in [-1, 1]."""
        self._logs += growths(value, self._grid, STAKES)
        while self._refuted < self._grid.size and self._refutes(self._refuted):
            self._refuted += 1
        while self._refuted and not self._refutes(self._refuted - 1):
            self._refuted -= 1

    def _refutes(self, point: int) -> bool:
        return bool(np.logaddexp.reduce(self._logs[:, point]) >= self._needed)


class ConfidenceSequence:
    """Interval of the mean of values in [-1, 1], fed one at a time: right at all moments at once with `confidence`.

    Each moment's interval is for the mean of the values so far and holds the average of these. The intersection of all
    of them would be narrower and never widen, but only right if the mean never moved.
    """

    def __init__(self, confidence: float = 0.95, *, at: Sequence[float] = ()) -> None:
        """`at`: bounds that matter and are not to be rounded. Raises `ValueError` where confidence is not in (0, 1)."""
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
        error = (1.0 - confidence) / 2.0
        self._above = LowerBound(error, at=at)
        self._below = LowerBound(error, at=[-point for point in at])
        self._sum = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        """One more value. Raises `ValueError` outside [-1, 1]."""
        if not -1.0 <= value <= 1.0:
            raise ValueError(f"values must be numbers from -1 to 1, got {value}")
        self._above.add(value)
        self._below.add(-value)
        self._sum += value
        self.count += 1

    @property
    def mean(self) -> float:
        """The average of the values so far; 0 before the first."""
        return self._sum / self.count if self.count else 0.0

    @property
    def low(self) -> float:
        """The mean is above this; -1 before the first value."""
        return self._above.bound

    @property
    def high(self) -> float:
        """The mean is below this; 1 before the first value."""
        return -self._below.bound


def later_share(value: int) -> float:
    """What part of the bets on later changes is on one at `value` (from 0): 1 in all, falling as 1 / value squared."""
    return PATIENCE / ((value + PATIENCE) * (value + PATIENCE + 1.0))


class ChangeTest:
    """Against "the mean of the values from any one on until now is at most `floor`": bets from each of them on.

    The part `first` of the wealth is bet on all values, the rest, little by little, on what begins later. So a change
    is seen within a delay that hardly grows with what came before it (by the log of the value's number over `PATIENCE`,
    twice), while the error holds for the whole of an endless sample; Shiryaev's and Roberts' test, which adds the bets
    up without weights, would only bound how often it is wrong. Money not yet bet is left out, which errs on the safe
    side.
    """

    def __init__(self, floor: float, *, first: float) -> None:
        self._floor = floor
        self._later = 1.0 - first
        self._count = 0
        self._wealths: NDArray[np.float64] = np.full(len(STAKES), first / len(STAKES))

    def add(self, value: float) -> None:
        """One more value in [-1, 1]."""
        begun = self._wealths + self._later * later_share(self._count) / len(STAKES)
        self._wealths = begun * np.exp(growths(value, self._floor, STAKES))
        self._count += 1

    @property
    def wealths(self) -> NDArray[np.float64]:
        """[stakes]: their sum ever reaches 1 / error with probability `error` at most while the hypothesis holds."""
        return self._wealths
