"""One forest that predicts what guidance is still worth, and what waiting is worth at each price of a row.

The first output is the remaining guidance value V = qg - q0 at the served tail width. The others are, for each price of
`PRICES`, the advantage A of going on under guidance to the next checkpoint and deciding there over handing off now, net
of the rows: fitted backward induction (optimal stopping),
    C_j = max(q0_j - price rows_j, E[C_{j+1} - price guided rows]).
Handing off is right where A <= 0; comparing now with never would not be optimal stopping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.forest.flat import FlatForest

PRICES: Final = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Success a forward evaluation, for which the induction is fitted; between them A is interpolated."""


@dataclass(frozen=True, slots=True)
class ValueHead:
    """A compiled forest with outputs [V, A at each price]."""

    forest: FlatForest
    prices: tuple[float, ...] = PRICES

    def __post_init__(self) -> None:
        if self.forest.value.shape[1] != len(self.prices) + 1:
            raise ValueError("a value head has one output for V and one for each price")

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """[n, 1 + prices]."""
        return self.forest.predict(features)

    def advantage(self, predicted: NDArray[np.float64], price: float) -> NDArray[np.float64]:
        """A [n] at any price, from `predict`'s answer; beyond the largest price it goes on linearly."""
        prices = np.array(self.prices)
        at = int(np.clip(np.searchsorted(prices, price, side="right") - 1, 0, len(prices) - 2))
        share = (price - prices[at]) / (prices[at + 1] - prices[at])
        left, right = predicted[:, 1 + at], predicted[:, 2 + at]
        advantage: NDArray[np.float64] = left + share * (right - left)
        return advantage
