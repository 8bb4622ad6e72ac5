"""Betting and the fixed sequence: certificates are kept, refusals say how many more prompts would do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gate_models.offline.gate_training.train import handoff_losses, risk_settings
from gate_models.statistics.betting import growth_rates, log_wealth, prompts_needed, upper_bound
from gate_models.statistics.fixed_sequence import MARGINS, FixedSequenceTest

NEEDED = -math.log(0.05)


@pytest.mark.parametrize(("loss", "share"), [(1.0, 0.03), (0.5, 0.06), (0.1, 0.3)])
def test_a_false_promise_is_made_in_at_most_one_of_twenty_calibrations(loss, share):
    """At a mean loss of exactly eps = 0.03; 3,000 calibrations, so 3 standard errors are 0.012."""
    rng = np.random.default_rng(0)
    promised = [log_wealth(loss * (rng.random(150) < share), 0.03) >= NEEDED for _ in range(3000)]
    assert np.mean(promised) <= 0.05 + 0.012


def test_signed_losses_with_rollout_noise_keep_the_promise_too():
    rng = np.random.default_rng(1)
    promised = [
        log_wealth((rng.normal(0.03, 0.3, 200)).clip(-1, 1), 0.03) >= NEEDED for _ in range(2000)
    ]  # clipping at 3.2 standard deviations moves the mean by less than 1e-3
    assert np.mean(promised) <= 0.07


def test_power_and_the_number_of_prompts():
    assert prompts_needed(growth_rates(np.zeros(10), 0.03), 0.95) == 117
    assert log_wealth(np.zeros(117), 0.03) >= NEEDED > log_wealth(np.zeros(116), 0.03)
    assert prompts_needed(growth_rates(np.full(50, 0.03), 0.03), 0.95) is None
    assert prompts_needed(growth_rates(np.empty(0), 0.03), 0.95) is None
    assert upper_bound(np.zeros(117), 0.95) == pytest.approx(0.03, abs=1e-3)
    assert upper_bound(np.ones(50), 0.95) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="-1 to 1"):
        log_wealth(np.array([1.5]), 0.03)
    with pytest.raises(ValueError, match="eps"):
        log_wealth(np.zeros(3), 1.0)


def test_the_ladder_stops_at_the_first_rung_that_fails():
    """Not monotone: the setting after a failed one would pass, and is not used."""
    zero, bad = np.zeros(200), np.full(200, 0.2)
    sequence = FixedSequenceTest.calibrate(
        [((0.9, 0.002), zero), ((0.6, 0.002), zero), ((0.3, 0.002), bad), ((0.1, 0.002), zero)]
    )
    assert sequence.choose(0.03, 0.95).setting == (0.6, 0.002)
    assert sequence.choose(0.035, 0.95).setting == (0.6, 0.002)  # rounded down to 0.03
    assert sequence.choose(0.01, 0.95).setting is None  # 200 prompts are too few for 0.01
    assert FixedSequenceTest.from_json(sequence.to_json()) == sequence
    with pytest.raises(ValueError, match="same prompts"):
        FixedSequenceTest.calibrate([((0.9, 0.0), zero), ((0.8, 0.0), zero[:5])])


def test_refusals_say_what_would_help():
    few = FixedSequenceTest.calibrate([((0.9, 0.002), np.zeros(40))])
    assert "about 77 more would do" in (few.choose(0.03, 0.95).refusal or "")
    lossy = FixedSequenceTest.calibrate([((0.9, 0.002), np.full(40, 0.5))])
    assert "too large" in (lossy.choose(0.03, 0.95).refusal or "")
    assert f"{MARGINS[0]:g}" in (few.choose(0.001, 0.95).refusal or "")


@pytest.mark.parametrize(("confidence", "said"), [(0.8, "80%"), (0.95, "95%"), (0.975, "97.5%"), (0.999, "99.9%")])
def test_what_a_refusal_promises_is_true_at_the_confidence_that_was_asked_for(confidence, said):
    """So many more prompts do, with the losses that were seen coming round again; a round of 20 fewer does not."""
    losses = np.array([*[0.0] * 19, 0.15])
    refusal = FixedSequenceTest.calibrate([((0.9, 0.002), losses)]).choose(0.03, confidence).refusal or ""
    assert f"with {said} confidence" in refusal
    more = int(refusal.split("about ")[1].split()[0])
    for extra, certified in ((more, True), (more - 20, False)):
        sequence = FixedSequenceTest.calibrate([((0.9, 0.002), np.resize(losses, losses.size + extra))])
        assert (sequence.choose(0.03, confidence).setting is not None) == certified


def test_a_ladder_that_does_not_fit_is_refused():
    content = FixedSequenceTest.calibrate([((0.9, 0.002), np.zeros(40))]).to_json()
    for name in ("margins", "stakes"):
        with pytest.raises(ValueError, match="other"):
            FixedSequenceTest.from_json(content | {name: content[name][:-1]})
    with pytest.raises(ValueError, match="rate of every stake"):
        FixedSequenceTest.from_json(content | {"rungs": [[0.9, 0.002, 0.0, content["rungs"][0][3][1:]]]})


def test_losses_are_intention_to_treat_at_the_first_handoff():
    value = np.array([[0.5, 0.2, 0.1], [0.4, 0.3, -0.1], [0.9, 0.9, 0.9]])
    stop = np.array([[False, True, True], [False, False, True], [False, False, False]])
    assert handoff_losses(stop, value).tolist() == [0.2, -0.1, 0.0]
    order = risk_settings((0.1, 0.5, 0.9))
    assert [setting[0] for setting in order[:3]] == [0.9, 0.5, 0.1]
    assert all(price > 0.002 for _, price in order[3:])
