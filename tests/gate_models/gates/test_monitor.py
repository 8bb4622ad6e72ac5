"""The monitor keeps its error rates over whole lives, and sees what it is there to see; streams of fixed seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count, cycle, zip_longest

import numpy as np
import pytest

from gate_models.gates.monitor import OUTCOMES, AuditPair, GateMonitor, epoch_error
from gate_models.offline.gate_audit.monitor_power import ACTIVE, BAD, SUSPENDED, UNCERTIFIED, delays, draw, fold
from gate_models.statistics.betting import log_wealth

MARGIN, ERROR = 0.03, 0.05
STATES = {"uncertified": UNCERTIFIED, "active": ACTIVE, "suspended": SUSPENDED}


def pair(prompt: object, gap: int, *, both: bool = True) -> AuditPair:
    """handoff - full = gap; `both` says how a tie comes about."""
    return AuditPair(str(prompt), bool(gap > 0 or (gap == 0 and both)), bool(gap < 0 or (gap == 0 and both)))


def test_epochs_together_spend_the_error():
    suspensions = [epoch_error(epoch, ERROR) for epoch in range(0, 20_000, 2)]
    recoveries = [epoch_error(epoch, ERROR) for epoch in range(1, 20_000, 2)]
    assert sum(suspensions) == pytest.approx(ERROR, rel=1e-3)
    assert sum(recoveries) == pytest.approx(ERROR / 2, rel=1e-3)
    assert max(sum(suspensions), 2 * sum(recoveries)) < ERROR


def test_settings_outside_0_and_1_are_refused():
    for wrong in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            GateMonitor(confidence=wrong)
        with pytest.raises(ValueError, match="margin"):
            GateMonitor(margin=wrong)


def test_it_begins_uncertified_and_knows_nothing():
    verdict = GateMonitor().verdict
    assert (verdict.state, verdict.pairs, verdict.prompts, verdict.gap) == ("uncertified", 0, 0, None)
    assert (verdict.low, verdict.high, verdict.epoch, verdict.epoch_pairs) == (-1.0, 1.0, 0, 0)
    assert verdict.needed is None
    assert verdict.counts == dict.fromkeys(OUTCOMES, 0)


def test_pairs_without_any_difference_certify_from_the_177th_on():
    """Real pairs differ now and then, which is why the notes say 850; betting alone, one-sided, needs 117."""
    monitor = GateMonitor()
    first = monitor.add(pair(0, 0))
    assert first.needed == 176
    states = [monitor.add(pair(number, 0, both=number % 2 == 0)).state for number in range(1, 200)]
    assert states.index("active") + 2 == 177
    verdict = monitor.verdict
    assert verdict.counts == {"ok_ok": 100, "ok_fail": 0, "fail_ok": 0, "fail_fail": 100}
    assert (verdict.gap, verdict.needed) == (0.0, 0)
    assert log_wealth(np.zeros(117), MARGIN) >= -math.log(0.05)


def spread(worse: int, better: int, among: int = 100) -> list[int]:
    """A cycle of gaps, its differences evenly spread and alternating as far as they go."""
    counts = [0] * among
    signs = [sign for signs in zip_longest([-1] * worse, [1] * better) for sign in signs if sign]
    for place, sign in zip(np.linspace(0, among - 1, len(signs)).astype(int), signs, strict=True):
        counts[place] = sign
    return counts


@pytest.mark.parametrize("before", [[], [-1, 0, 0] * 60], ids=["new", "suspended"])
def test_needed_says_when_a_gate_will_be_active(before):
    """Outcomes recur every 100 pairs. "About" while it is suspended: pairs since the worst moment look a bit better."""
    numbers = count()
    monitor = GateMonitor.replay([pair(next(numbers), gap) for gap in before])
    assert monitor.verdict.state == ("suspended" if before else "uncertified")
    for gap in spread(3, 3) * 2:
        promised = monitor.add(pair(next(numbers), gap)).needed
    assert promised is not None
    waited = 0
    for gap in cycle(spread(3, 3)):
        waited += 1
        if monitor.add(pair(next(numbers), gap)).state == "active":
            break
    assert promised > 300
    assert promised / 2 <= waited <= 2 * promised if before else abs(waited - promised) <= 100


def test_none_is_needed_where_none_would_do():
    monitor = GateMonitor()
    verdicts = [monitor.add(pair(number, -1 if number % 4 == 0 else 0)) for number in range(300)]
    assert verdicts[-1].state == "suspended"
    assert {verdict.needed for verdict in verdicts if verdict.state == "uncertified"} == {None}
    assert monitor.add(pair("bad", -1)).needed is None


def test_a_suspension_is_what_the_upper_bound_says_and_begins_an_epoch_that_remembers_nothing():
    monitor, before = GateMonitor(), GateMonitor().verdict
    for number in range(1000):
        verdict = monitor.add(pair(number, -1 if number % 5 == 0 else 0))
        if verdict.state == "suspended":
            break
        assert verdict.high >= -MARGIN  # one that is below suspends at once
        before = verdict
    assert before.low < -MARGIN  # long since, which is ignorance
    assert (verdict.epoch, verdict.epoch_pairs, verdict.gap) == (1, 0, None)
    assert (verdict.low, verdict.high) == (-1.0, 1.0)
    assert verdict.pairs == before.pairs + 1
    assert before.gap == pytest.approx(-0.2, abs=0.02)


def phases(rng: np.random.Generator, streams: int, discordance: float, *stretches: tuple[int, float]) -> np.ndarray:
    return np.hstack([draw(rng, streams, pairs, gap=gap, discordance=discordance) for pairs, gap in stretches])


@pytest.mark.parametrize(
    ("margin", "confidence", "stretches"),
    [
        (0.03, 0.95, [(900, 0.0), (700, BAD)]),
        (0.03, 0.9, [(400, BAD), (1200, 0.08)]),
        (0.1, 0.8, [(150, -0.28), (200, 0.25)] * 3),
    ],
)
def test_streams_folded_at_once_are_the_monitor_s(margin, confidence, stretches):
    gaps = phases(np.random.default_rng(2), 6, 0.3, *stretches)
    course = fold(gaps, margin=margin, confidence=confidence)
    for stream, states, epochs in zip(gaps, course.state, course.epoch, strict=True):
        monitor = GateMonitor(margin=margin, confidence=confidence)
        folded = [monitor.add(pair(number, gap)) for number, gap in enumerate(stream)]
        assert [STATES[verdict.state] for verdict in folded] == states.tolist()
        assert [verdict.epoch for verdict in folded] == epochs.tolist()
        assert all(verdict.low < verdict.high for verdict in folded)
    assert course.epoch.max() >= (5 if confidence == 0.8 else 1)
    assert course.ever(ACTIVE).any()


def test_replay_is_the_same_as_one_by_one():
    rng = np.random.default_rng(3)
    gaps = phases(rng, 1, 0.3, (900, -0.2))[0]
    stream = [pair(rng.integers(500), gap) for gap in gaps]
    monitor = GateMonitor(margin=0.05, confidence=0.9)
    for index, one in enumerate(stream):
        verdict = monitor.add(one)
        if index % 150 == 0:
            assert GateMonitor.replay(stream[: index + 1], margin=0.05, confidence=0.9).verdict == verdict
    assert GateMonitor.replay(stream, margin=0.05, confidence=0.9).verdict == monitor.verdict
    assert monitor.verdict.epoch >= 1


# Errors over whole lives, in 10,000 streams


@pytest.mark.parametrize(
    ("gap", "discordance", "pairs"), [(0.0, 0.1, 2000), (-MARGIN, 0.03, 1500), (-MARGIN, 0.2, 3000)]
)
def test_a_gate_that_keeps_the_margin_is_not_suspended_beyond_the_error(gap, discordance, pairs):
    """The boundary is the worst case of both claims: a gate there is not certified beyond the error either."""
    course = fold(draw(np.random.default_rng(4), 10_000, pairs, gap=gap, discordance=discordance))
    assert course.ever(SUSPENDED).mean() <= (ERROR if gap < 0.0 else ERROR / 50)
    if gap < 0.0:
        assert course.ever(ACTIVE).mean() <= ERROR / 2
    else:
        assert course.ever(ACTIVE).mean() >= 0.5


def test_looking_at_a_plain_interval_again_and_again_would_break_it():
    """What the other tests could fail at: at the boundary, a 95 % interval from normal theory at every look."""
    gaps = draw(np.random.default_rng(5), 2000, 2000, gap=-MARGIN, discordance=0.2)
    looks = np.arange(1, 2001)
    mean, square = gaps.cumsum(1) / looks, (gaps.astype(np.int64) ** 2).cumsum(1) / looks
    upper = mean + 1.96 * np.sqrt((square - mean**2) / looks)
    assert (upper[:, 50:] < -MARGIN).any(1).mean() > 3 * ERROR


def test_a_suspended_gate_at_the_boundary_does_not_recover_beyond_the_error():
    course = fold(phases(np.random.default_rng(6), 10_000, 0.2, (600, -0.2), (1500, -MARGIN)))
    assert course.ever(SUSPENDED).all()
    assert course.ever(ACTIVE).mean() <= ERROR


def test_traffic_that_changes_keeps_the_certificate_honest():
    """Gaps of -0.1 and +0.04 in turns, -0.03 or worse on average at every moment."""
    course = fold(phases(np.random.default_rng(7), 4000, 0.12, *[(25, -0.1), (25, 0.04)] * 30))
    assert course.ever(ACTIVE).mean() <= ERROR / 2


# Power; the same figures in docs/shadow-audit.md by `astargate gate power`


@pytest.mark.parametrize(
    ("course", "awaited", "discordance", "within"),
    [
        ([(1000, BAD)], SUSPENDED, 0.2, 900),
        ([(600, BAD)], SUSPENDED, 0.1, 270),
        ([(2000, 0.0), (2000, BAD)], SUSPENDED, 0.2, 1450),
        ([(5000, 0.0)], ACTIVE, 0.1, 2600),
        ([(1000, BAD), (5000, 0.0)], ACTIVE, 0.1, 4000),
    ],
    ids=["bad", "bad, few differ", "turned bad", "good", "good again"],
)
def test_what_a_gate_does_is_seen_in_95_of_100_streams_within(course, awaited, discordance, within):
    waits = delays(np.random.default_rng(8), course, awaited, streams=1500, discordance=discordance)
    assert waits.size > 700
    assert (waits <= within).mean() >= 0.95
    assert (waits <= within / 4).mean() < 0.95


# Prompts that come again


def test_only_the_first_pair_of_a_prompt_counts_in_an_epoch():
    rng = np.random.default_rng(9)
    gaps = draw(rng, 1, 300, gap=0.0, discordance=0.1)[0]
    alone, repeated = GateMonitor(), GateMonitor()
    for prompt, gap in enumerate(gaps):
        known = alone.add(pair(prompt, gap))
        repeated.add(pair(prompt, gap))
        repeated.add(pair(rng.integers(prompt + 1), -1))
        state = repeated.add(pair(prompt, -1))
        assert replace(state, pairs=0, counts={}) == replace(known, pairs=0, counts={})
    assert (state.pairs, state.prompts, state.epoch_pairs) == (900, 300, 300)
    assert state.counts["fail_ok"] == known.counts["fail_ok"] + 600
    assert alone.add(pair(0, 0)).epoch_pairs == 300


def test_a_new_epoch_takes_known_prompts_again():
    monitor = GateMonitor.replay(pair(number, -1) for number in range(20))
    known = monitor.verdict
    assert known.state == "suspended"
    verdict = monitor.add(pair(0, 0))
    assert (verdict.epoch_pairs, verdict.prompts) == (known.epoch_pairs + 1, 20)


def test_repeated_prompts_do_not_break_the_error_and_would_if_each_pair_counted():
    """Every prompt has an outcome of its own and comes 30 times; over prompts the gap is exactly -margin."""
    prompts = draw(np.random.default_rng(10), 3000, 60, gap=-MARGIN, discordance=0.2)
    naive, course = fold(np.repeat(prompts, 30, axis=1)), fold(prompts)
    assert naive.ever(SUSPENDED).mean() > 3 * ERROR
    assert course.ever(SUSPENDED).mean() <= ERROR
    for stream in np.flatnonzero(naive.ever(SUSPENDED) & ~course.ever(SUSPENDED))[:5]:
        monitor = GateMonitor.replay(pair(prompt, gap) for prompt, gap in enumerate(prompts[stream]) for _ in range(30))
        assert (monitor.verdict.epoch, STATES[monitor.verdict.state]) == (0, course.state[stream, -1])
        assert monitor.verdict.pairs == 1800
