"""`astargate gate power`: how many audited pairs a `GateMonitor` needs before it decides.

All streams are folded at once, by the rule of `GateMonitor` and to its verdicts (tested); prompts are distinct.
What matters beside the gap is how often a pair's outcomes differ (the discordance).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.gates.monitor import FIRST, epoch_error
from gate_models.offline.runs import markdown
from gate_models.statistics.betting import growths
from gate_models.statistics.confidence_sequence import STAKES, later_share

UNCERTIFIED, ACTIVE, SUSPENDED = 0, 1, 2
Gaps = NDArray[np.int8]
DISCORDANCES: Final = (0.1, 0.2, 0.3)
BAD: Final = -0.10
"""Gap of a bad gate."""
Stretch = tuple[int, float]
"""(pairs, their gap)."""


@dataclass(frozen=True, slots=True)
class Course:
    """States (0 uncertified, 1 active, 2 suspended) and epochs after each pair, both [streams, pairs]."""

    state: NDArray[np.int8]
    epoch: NDArray[np.int8]

    def ever(self, state: int) -> NDArray[np.bool_]:
        """[streams]: whether they were in a state."""
        return np.asarray((self.state == state).any(1))

    def delays(self, state: int, after: int = 0) -> NDArray[np.float64]:
        """[streams]: pairs from `after` (exclusive) until a state is first seen; infinite where it never is."""
        seen = self.state[:, after:] == state
        waited: NDArray[np.float64] = np.where(seen.any(1), seen.argmax(1) + 1.0, math.inf)
        return waited


def draw(rng: np.random.Generator, streams: int, pairs: int, *, gap: float, discordance: float) -> Gaps:
    """[streams, pairs] of handoff - full: 1 and -1 together have probability `discordance`, and the mean is `gap`.

    Raises `ValueError` where pairs would have to differ more often than they do.
    """
    if not abs(gap) <= discordance <= 1.0:
        raise ValueError(f"a gap of {gap} needs a discordance from {abs(gap)} to 1, got {discordance}")
    drawn = rng.random((streams, pairs))
    worse = drawn < (discordance - gap) / 2.0
    return (drawn < discordance).astype(np.int8) - 2 * worse.astype(np.int8)


def fold(gaps: Gaps, *, margin: float = 0.03, confidence: float = 0.95) -> Course:
    """What a `GateMonitor` says after each pair, for every stream of handoff - full [streams, pairs]."""
    streams, pairs = gaps.shape
    values, stakes = np.array([-1.0, 0.0, 1.0]), len(STAKES)
    enough = 1.0 / np.array([epoch_error(epoch, 1.0 - confidence) for epoch in range(pairs + 1)])
    above = np.exp(growths(values, -margin, STAKES))
    wins = np.hstack([np.exp(growths(-values, margin, STAKES)), above])  # of an even epoch, of an odd one
    later = (1.0 - FIRST) / stakes * np.array([later_share(value) for value in range(pairs)])
    state, epoch, begun = (np.zeros(streams, dtype=np.int64) for _ in range(3))
    change = np.full((stakes, streams), FIRST / stakes)
    whole = np.full((stakes, streams), 1.0 / stakes)  # zero once the gate is certified or suspended
    states, epochs = (np.empty((pairs, streams), dtype=np.int8) for _ in range(2))
    for pair, outcome in enumerate(np.ascontiguousarray(gaps.T) + 1):
        change += later[pair - begun]
        change *= wins.take(outcome + 3 * (epoch % 2), axis=1)
        whole *= above.take(outcome, axis=1)
        certified = np.flatnonzero(whole.sum(0) >= enough[0] / FIRST)
        state[certified] = ACTIVE
        crossed = np.flatnonzero(change.sum(0) >= enough[epoch])
        state[crossed] = np.where(epoch[crossed] % 2, ACTIVE, SUSPENDED)
        epoch[crossed] += 1
        begun[crossed] = pair + 1
        change[:, crossed] = FIRST / stakes
        whole[:, certified] = whole[:, crossed] = 0.0
        states[pair], epochs[pair] = state, epoch
    return Course(states.T, epochs.T)


def delays(
    rng: np.random.Generator, course: Sequence[Stretch], awaited: int, *, streams: int, discordance: float
) -> NDArray[np.float64]:
    """Pairs of the last stretch until a state is first seen, of the streams that entered it in another; infinite where
    the stretch is too short.
    """
    gaps = np.hstack([draw(rng, streams, pairs, gap=gap, discordance=discordance) for pairs, gap in course])
    folded, before = fold(gaps), sum(pairs for pairs, _ in course[:-1])
    other = folded.state[:, before - 1] != awaited if before else np.ones(streams, dtype=np.bool_)
    waited: NDArray[np.float64] = folded.delays(awaited, before)[other]
    return waited


def table(streams: int, seed: int) -> str:
    """Median and 95th percentile of what a monitor needs at its default margin and confidence, in Markdown."""
    rng = np.random.default_rng(seed)
    heads = ("pairs that differ", "certified", "suspended", "suspended after 2,000 good", "recovered after 1,000 bad")
    rows = []
    courses: list[tuple[int, list[Stretch]]] = [
        (ACTIVE, [(9000, 0.0)]),
        (SUSPENDED, [(3000, BAD)]),
        (SUSPENDED, [(2000, 0.0), (4000, BAD)]),
        (ACTIVE, [(1000, BAD), (12000, 0.0)]),
    ]
    for discordance in DISCORDANCES:
        cells = [f"{discordance:.0%}"]
        for awaited, course in courses:
            waited = delays(rng, course, awaited, streams=streams, discordance=discordance)
            cells.append(" / ".join(f"{pairs:,.0f}" for pairs in np.quantile(waited, (0.5, 0.95), method="higher")))
        rows.append(cells)
    return markdown.table(heads, rows)
