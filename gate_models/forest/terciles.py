"""Early, middle and late horizons: a predicted horizon becomes one of three classes (the paper's, Appendix H.1).

Kept apart from the heads that are trained: what is served needs no scikit-learn.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

TAU: Final = 0.6
"""Confidence of the fate head from which `policy` may depart from the constant cut."""
TERCILES: Final = (1 / 3, 2 / 3)


def bins(horizons: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Tercile of each horizon [n]: up to the first edge, up to the second, above it. An edge belongs below."""
    terciles: NDArray[np.int64] = np.searchsorted(edges[:2], horizons, side="left")
    return terciles
