"""Does a gate cost success in service? A monitor answers it from paired continuations of the very same states.

A pair is one handed-off request, chosen before its outcome, continued from its handoff as served and under full CFG.
The gap is the mean of handoff - full: success lost, given a handoff. Intention-to-treat it is that times the share of
requests that hand off.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from gate_models.statistics.betting import growths, rounds_needed
from gate_models.statistics.confidence_sequence import STAKES, ChangeTest, ConfidenceSequence

GateState = Literal["uncertified", "active", "suspended"]
OUTCOMES: Final = ("ok_ok", "ok_fail", "fail_ok", "fail_fail")
FIRST: Final = 2.0 / 3.0
"""Part of an epoch's error for its pairs as a whole; the rest is for a change after some of them."""


@dataclass(frozen=True, slots=True)
class AuditPair:
    """Two continuations of one handed-off request from the state of its handoff."""

    prompt: str
    """Digest of what identifies the prompt (cluster)."""
    handoff: bool
    """The handoff's pre-repair text meets its constraint."""
    full: bool
    """The full-CFG continuation's does."""

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`: the handoff's before the full continuation's."""
        return f"{'ok' if self.handoff else 'fail'}_{'ok' if self.full else 'fail'}"


@dataclass(frozen=True, slots=True)
class MonitorVerdict:
    """What the pairs of one gate version say."""

    state: GateState
    pairs: int
    """All pairs of this gate version."""
    prompts: int
    """Distinct ones among them."""
    counts: Mapping[str, int]
    """All pairs by `OUTCOMES`."""
    gap: float | None
    """Mean of handoff - full over the `epoch_pairs`; None without any."""
    low: float
    high: float
    """Anytime-valid interval of the epoch's gap, at the asked confidence or better; [-1, 1] before its first pair."""
    epoch: int
    """From 0; grows with each suspension and each recovery."""
    epoch_pairs: int
    """Pairs of the present epoch that count: the first of every prompt."""
    needed: int | None
    """About how many more counting pairs would make the gate active if they go on as the epoch's have, or while it is
    suspended, as those since its worst moment: 0 where it is active, None where none would or there is none to go by.
    """


def epoch_error(epoch: int, error: float) -> float:
    """What an epoch may spend of `error`, so that all may: of suspensions (even epochs) 3/4, 1/8, 1/24, 1/48..., of
    recoveries (odd ones) 1/4, 1/12, 1/24...: half, as certifying in epoch 0 spends the other.
    """
    spell = epoch // 2
    if epoch % 2:
        return error / (2 * (spell + 1) * (spell + 2))
    return error / (4 * spell * (spell + 1)) if spell else 0.75 * error


class GateMonitor:
    """A pure fold over the pairs of one gate version, in their order: a database that holds them rebuilds it.

    *Order.* Any order keeps what is promised below, of the means that pairs have given the ones before them *in that
    order*. So that these are the gate's own, the order must not depend on outcomes: were pairs taken as they end, and
    failures took longer, a good gate's failures would come in heaps, and each heap would look like a change. Admission
    order does not. Of several servers each keeps to its own; theirs interleave as the first texts are done, when repair
    has not begun.

    *States.* `uncertified` until the lower bound of the gap reaches -margin: `active`. Either is `suspended` as soon as
    the gap's upper bound is below -margin over the epoch, or over its pairs since any one of them (`ChangeTest`: a gate
    that turns bad after a long good time is seen by its last pairs, not by the average of all). A lower bound below
    -margin suspends nothing: that is ignorance. Each suspension begins a new epoch, which remembers no pair. It is fed
    by shadowed handoffs, and once the gap is shown above -margin since some pair of it, the gate is `active` again in
    another new epoch. Not `uncertified`: that it does no harm was shown as for a certificate, from pairs that came
    after the suspension and played no part in it; and not on less, since harm had been shown.

    *Errors.* "The gap" of a stretch of pairs is the average of each one's expected handoff - full, given the pairs
    before it; the traffic may change. Over the whole life, with however many epochs and looks,
    - with probability 1 - confidence at most, the gate is ever suspended although the gap is at least -margin over
      every stretch that ends there and lies in its epoch. So a gate whose true gap stays at or above -margin is ever
      suspended with that probability at most;
    - with probability 1 - confidence at most, it ever becomes active although the gap is at most -margin over every
      such stretch (for the certificate itself: over epoch 0 so far, with half that probability at most).

    *Prompts* that come again are not independent: in each epoch the first pair of a prompt counts and later ones do
    not (`counts` has all). Else one popular prompt could suspend or certify a gate. What happens to prompts that an
    epoch has seen is therefore not watched until the next epoch.
    """

    def __init__(self, *, margin: float = 0.03, confidence: float = 0.95) -> None:
        """Raises `ValueError` where margin or confidence is not between 0 and 1."""
        for name, value in (("margin", margin), ("confidence", confidence)):
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        self._margin = margin
        self._error = 1.0 - confidence
        self._state: GateState = "uncertified"
        self._counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._prompts: set[str] = set()
        self._begin(0)

    @staticmethod
    def replay(pairs: Iterable[AuditPair], *, margin: float = 0.03, confidence: float = 0.95) -> GateMonitor:
        """The monitor after `pairs`, in their order."""
        monitor = GateMonitor(margin=margin, confidence=confidence)
        for pair in pairs:
            monitor._take(pair)
        return monitor

    def add(self, pair: AuditPair) -> MonitorVerdict:
        """One more pair, and what all of them say now."""
        self._take(pair)
        return self.verdict

    @property
    def verdict(self) -> MonitorVerdict:
        """What the pairs so far say."""
        epoch = self._sequence
        return MonitorVerdict(
            state=self._state,
            pairs=self._counts.total(),
            prompts=len(self._prompts),
            counts=dict(self._counts),
            gap=epoch.mean if epoch.count else None,
            low=epoch.low,
            high=epoch.high,
            epoch=self._epoch,
            epoch_pairs=epoch.count,
            needed=self._needed(),
        )

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._spent = epoch_error(epoch, self._error)
        self._seen: set[str] = set()
        self._gaps: Counter[int] = Counter()
        self._above = 0.0
        self._sequence = ConfidenceSequence(1.0 - 2.0 * FIRST * self._spent, at=[-self._margin])
        self._sign = 1 if epoch % 2 else -1
        self._change = ChangeTest(-self._sign * self._margin, first=FIRST)

    def _take(self, pair: AuditPair) -> None:
        self._counts[pair.outcome] += 1
        self._prompts.add(pair.prompt)
        if pair.prompt in self._seen:
            return
        self._seen.add(pair.prompt)
        gap = pair.handoff - pair.full
        self._gaps[gap] += 1
        self._above += gap + self._margin
        if self._state == "suspended" and self._above <= 0.0:
            self._above = 0.0
            self._gaps.clear()
        self._sequence.add(gap)
        self._change.add(self._sign * gap)
        if self._change.wealths.sum() >= 1.0 / self._spent:
            self._state = "active" if self._state == "suspended" else "suspended"
            self._begin(self._epoch + 1)
        elif self._state == "uncertified" and self._sequence.low >= -self._margin:
            self._state = "active"

    def _needed(self) -> int | None:
        if self._state == "active":
            return 0
        count = self._gaps.total()
        if count == 0:
            return None
        values, times = np.array(sorted(self._gaps.items()), dtype=np.float64).T
        growth = growths(values, -self._margin, STAKES) @ (times / count)
        if self._state == "suspended":
            return rounds_needed(np.log(self._change.wealths), growth, -math.log(self._spent))
        return rounds_needed(growth * count - math.log(len(STAKES)), growth, -math.log(FIRST * self._spent))
