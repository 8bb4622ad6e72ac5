"""Non-asymptotic tests of a mean by betting (Waudby-Smith & Ramdas 2023): what learn-then-test stands on.

H0: the mean loss is above eps. A gambler who bets against it with stake b wins 1 + b (eps - loss) a prompt; under H0
the expected wealth never grows, so wealth of at least 1 / delta has probability at most delta (Markov). The stakes are
a fixed mixture, half of it on the largest (the best one while losses are rare): an e-value that needs no tuning and
does not depend on the order of the prompts. Without any loss, eps = 0.03 is certified at 95 % from 117 prompts on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SHARES: Final = (0.999, 0.75, 0.55, 0.4, 0.3, 0.2, 0.12, 0.06)
"""Stakes as shares of the one that a loss of 1 would ruin; below 1, so that wealth stays positive."""
_WEIGHTS: Final = (0.5, *[0.5 / 7] * 7)
_MOST: Final = 10_000_000


def growths(
    values: NDArray[np.float64] | float, floor: NDArray[np.float64] | float, shares: Sequence[float]
) -> NDArray[np.float64]:
    """[shares, ...]: log of what each stake on "the mean is above `floor`" wins with values in [-1, 1].

    `values` and `floor` are broadcast. A stake is a share, below 1, of the one that a value of -1 would ruin.
    """
    logs: NDArray[np.float64] = np.log1p(np.multiply.outer(np.array(shares), (values - floor) / (1.0 + floor)))
    return logs


def rounds_needed(logs: NDArray[np.float64], growth: NDArray[np.float64], needed: float) -> int | None:
    """The fewest further rounds after which the wealth of all stakes has the log `needed`; None where no number would.

    The logs of the stakes' wealths are `logs` [stakes] now and grow by `growth` [stakes] a round.
    """
    low, high = -1, 0
    while float(np.logaddexp.reduce(logs + growth * high)) < needed:
        low, high = high, max(1, 2 * high)
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = float(np.logaddexp.reduce(logs + growth * middle)) >= needed
        low, high = (low, middle) if enough else (middle, high)
    return high


def growth_rates(losses: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    """[stakes]: log of what each stake against "mean loss > eps" wins a prompt, on average; 0 without prompts.

    Losses [n] in [-1, 1]. Raises `ValueError` outside that range, or for eps outside (0, 1).
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps must be between 0 and 1, got {eps}")
    if losses.size == 0:
        return np.zeros(len(SHARES))
    if not np.isfinite(losses).all() or losses.min() < -1.0 or losses.max() > 1.0:
        raise ValueError("losses must be numbers from -1 to 1")
    rates: NDArray[np.float64] = growths(-losses, -eps, SHARES).mean(1)
    return rates


def wealth_after(prompts: int, rates: Sequence[float] | NDArray[np.float64]) -> float:
    """Log of the mixed gambler's wealth after so many prompts on which the stakes grew at `rates` [stakes]."""
    return float(np.logaddexp.reduce(np.asarray(rates) * prompts + np.log(_WEIGHTS)))


def log_wealth(losses: NDArray[np.float64], eps: float) -> float:
    """Log of the mixed gambler's wealth against "mean loss > eps". Losses [n] in [-1, 1] of independent prompts.

    Raises `ValueError` as `growth_rates` does.
    """
    return wealth_after(losses.size, growth_rates(losses, eps))


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


def prompts_needed(rates: Sequence[float] | NDArray[np.float64], confidence: float) -> int | None:
    """Prompts in all that would certify, with `confidence`, an eps at which every stake goes on growing at `rates`
    (`growth_rates`); None where none would.
    """
    return rounds_needed(np.log(_WEIGHTS), np.asarray(rates, dtype=np.float64), -math.log1p(-confidence))
