"""Confidence intervals of success rates, of means, and of the difference of two of them (Wilson, Newcombe, Student)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; `method` says how the interval was made."""

    value: float
    low: float
    high: float
    method: str

    @property
    def signed(self) -> str:
        """A difference with its interval, as tables show it."""
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"

    @property
    def rounded(self) -> list[float]:
        """The number, its lower and its upper end, as reports keep them."""
        return [round(value, 3) for value in (self.value, self.low, self.high)]


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _t(confidence: float, freedom: float) -> float:
    return float(stdtrit(freedom, 0.5 + confidence / 2))


def wilson(successes: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion (95 % by default). (0, 1) where `count` is 0."""
    if count == 0:
        return 0.0, 1.0
    p, denominator = successes / count, 1 + z * z / count
    centre = (p + z * z / (2 * count)) / denominator
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)


def proportion(successes: int, count: int, confidence: float = 0.95) -> Estimate:
    """Wilson score interval of a proportion. Raises `ValueError` where `count` is 0."""
    if count < 1:
        raise ValueError("an empty cell has no success rate; run at least one rollout")
    low, high = wilson(successes, count, _z(confidence))
    return Estimate(successes / count, low, high, "wilson")


def square_and_add(one: Estimate, other: Estimate) -> Estimate:
    """`one` less `other`, which are independent: the squares of the distances to their interval's ends are added."""
    value = one.value - other.value
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    high = value + math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(value, low, high, "square_and_add")


def newcombe(guided: tuple[int, int], base: tuple[int, int], confidence: float = 0.95) -> Estimate:
    """Difference guided - base of two independent proportions, each (successes, count).

    Newcombe (1998), method 10 of "Interval estimation for the difference between independent proportions": the square
    and add of two Wilson intervals.
    """
    difference = square_and_add(proportion(*guided, confidence), proportion(*base, confidence))
    return Estimate(difference.value, max(-1.0, difference.low), min(1.0, difference.high), "newcombe")


def paired_newcombe(guided: NDArray[np.bool_], base: NDArray[np.bool_], confidence: float = 0.95) -> Estimate:
    """Difference of two proportions on the same rollouts [N] (common random numbers).

    Newcombe (1998), method 10 of "Improved confidence intervals for the difference between binomial proportions based
    on paired data": the independent interval, shrunk by the correlation of the pairs.
    """
    count = guided.size
    if base.size != count:
        raise ValueError(f"paired arms need equal counts, got {count} and {base.size}")
    q, r = proportion(int(guided.sum()), count, confidence), proportion(int(base.sum()), count, confidence)
    phi = _phi(guided, base)
    difference = q.value - r.value
    below, above = (q.value - q.low, r.high - r.value), (q.high - q.value, r.value - r.low)
    low = difference - math.sqrt(max(0.0, below[0] ** 2 - 2 * phi * below[0] * below[1] + below[1] ** 2))
    high = difference + math.sqrt(max(0.0, above[0] ** 2 - 2 * phi * above[0] * above[1] + above[1] ** 2))
    return Estimate(difference, max(-1.0, low), min(1.0, high), "newcombe_paired")


def _phi(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Correlation of the pairs, with Newcombe's continuity correction where it is positive."""
    both, first = int((one & other).sum()), int((one & ~other).sum())
    second, neither = int((~one & other).sum()), int((~one & ~other).sum())
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - first * second)
    if product > 0:
        product = max(product - one.size / 2, 0.0)
    return float(product / math.sqrt(margins))


def mean_interval(values: NDArray[np.float64], confidence: float = 0.95) -> Estimate:
    """Student's t interval of a mean of independent values in [-1, 1].

    Where all values are equal the spread says nothing: the half-width is then the rule of three's 3 / n.
    """
    count, mean = values.size, float(values.mean())
    spread = float(values.std(ddof=1)) if count > 1 else 0.0
    half = _t(confidence, count - 1) * spread / math.sqrt(count) if spread > 0.0 else 3.0 / count
    return Estimate(mean, max(-1.0, mean - half), min(1.0, mean + half), "student_t")


def welch(guided: NDArray[np.float64], base: NDArray[np.float64], confidence: float = 0.95) -> Estimate:
    """Difference of two means of independent graded scores in [0, 1] (Welch's t interval)."""
    difference = float(guided.mean() - base.mean())
    parts = [values.var(ddof=1) / values.size if values.size > 1 else 0.0 for values in (guided, base)]
    variance = float(sum(parts))
    if variance == 0.0:
        half = 3.0 / min(guided.size, base.size)
    else:
        freedom = variance**2 / sum(p**2 / (v.size - 1) for p, v in zip(parts, (guided, base), strict=True) if p > 0)
        half = _t(confidence, freedom) * math.sqrt(variance)
    return Estimate(difference, max(-1.0, difference - half), min(1.0, difference + half), "welch")
