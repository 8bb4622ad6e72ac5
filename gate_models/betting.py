"""Non-asymptotic tests of a mean by betting (Waudby-Smith & Ramdas 2023): what learn-then-test stands on.

H0: the mean loss is above eps. A gambler who bets against it with stake b wins 1 + b (eps - loss) a prompt; under H0
the expected wealth never grows, so wealth of at least 1 / delta has probability at most delta (Markov). The stakes are
a fixed mixture, half of it on the largest (the best one while losses are rare): an e-value that needs no tuning and
does not depend on the order of the prompts. Without any loss, eps = 0.03 is certified at 95 % from 117 prompts on.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

_SHARES: Final = (0.999, 0.75, 0.55, 0.4, 0.3, 0.2, 0.12, 0.06)
"""Stakes as shares of the one that a loss of 1 would ruin; below 1, so that wealth stays positive."""
_WEIGHTS: Final = (0.5, *[0.5 / 7] * 7)
_MOST: Final = 10_000_000


def _growths(losses: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    """[stakes, n]: log of what each stake wins on each prompt."""
    stakes = np.array(_SHARES) / (1.0 - eps)
    return np.log1p(stakes[:, None] * (eps - losses))


def log_wealth(losses: NDArray[np.float64], eps: float) -> float:
    """Log of the mixed gambler's wealth against "mean loss > eps". Losses [n] in [-1, 1] of independent prompts.

    Raises `ValueError` outside that range, or for eps outside (0, 1).
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps must be between 0 and 1, got {eps}")
    if losses.size and (not np.isfinite(losses).all() or losses.min() < -1.0 or losses.max() > 1.0):
        raise ValueError("losses must be numbers from -1 to 1")
    return float(logsumexp(_growths(losses, eps).sum(1), b=_WEIGHTS))


def upper_bound(losses: NDArray[np.float64], confidence: float) -> float:
    """Upper confidence bound of the mean loss: the smallest eps in (0, 1) that the test certifies; 1 where none."""
    low, high, needed = 0.0, 1.0, -math.log1p(-confidence)
    for _ in range(40):
        middle = (low + high) / 2
        if log_wealth(losses, middle) >= needed:
            high = middle
        else:
            low = middle
    return high


def prompts_needed(losses: NDArray[np.float64], eps: float, confidence: float) -> int | None:
    """Prompts in all that would certify eps if further ones lose as these do; None where none would.

    Every stake's wealth is taken to grow a prompt as it does on the observed losses.
    """
    if losses.size == 0:
        return None
    growth, needed = _growths(losses, eps).mean(1), -math.log1p(-confidence)
    low, high = 0, 1
    while float(logsumexp(growth * high, b=_WEIGHTS)) < needed:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if float(logsumexp(growth * middle, b=_WEIGHTS)) >= needed else (middle, high)
    return high
