"""The value gate against exact optimal stopping, and the risk gate's promise, on toys that can be enumerated."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from decoding.gates.protocol import Regime
from gate_models.offline.gate_training.dataset import FamilyData
from gate_models.offline.gate_training.value_fit import fit_head, induce
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import ToyTables, random_tables
from gate_models.statistics.fixed_sequence import MARGINS, FixedSequenceTest

STEPS = 4
CHECKPOINTS = (1, 2, 3)
PATHS = 700
RULES = Rules(steps=STEPS, scale=1.5)


@cache
def toy(seed: int, at_most: int = 2) -> ExactToy:
    """Guidance asks for the letter a, which the model gives too rarely; of four letters at least two must be a.

    With `at_most` 2 guidance can also do harm: when to stop depends on the state.
    """
    tables = random_tables(seed, 3, 4, 0.8)
    tables.conditional[..., 0] -= 0.2
    tables.unconditional[..., 0] -= 1.4
    return ExactToy(
        ToyTables(tables.canvas, tables.conditional, tables.unconditional),
        RULES,
        lambda text: 2 <= text.count(0) <= at_most,
    )


def paths(exact: ExactToy, seed: int) -> np.ndarray:
    """[PATHS, checkpoints]: states of guided runs."""
    rng = np.random.default_rng(seed)
    state, states = np.full(PATHS, exact.canvas.empty), []
    for step in range(max(CHECKPOINTS)):
        kernel = exact.kernel(step, "guided").numpy()
        state = np.array([rng.choice(exact.canvas.states, p=kernel[s] / kernel[s].sum()) for s in state])
        if step + 1 in CHECKPOINTS:
            states.append(state)
    return np.stack(states, 1)


def features_of(exact: ExactToy, step: int) -> np.ndarray:
    """[states, L + 1]: the canvas and the step."""
    digits = exact.canvas.digits.numpy().astype(np.float32)
    return np.concatenate([digits, np.full((len(digits), 1), step, dtype=np.float32)], 1)


def data_of(exact: ExactToy, seed: int) -> FamilyData:
    """One guided run a prompt, with its exact V at every checkpoint."""
    states, value = paths(exact, seed), exact.value()
    features = np.stack([features_of(exact, step)[states[:, j]] for j, step in enumerate(CHECKPOINTS)], 1)
    gain = np.stack([value[step].numpy()[states[:, j]] for j, step in enumerate(CHECKPOINTS)], 1)
    length = exact.canvas.length
    return FamilyData(
        family="toy", task="toy", gen_length=length, steps=STEPS,
        regime=Regime("toy", "toy", 2.0, STEPS, length, 1, 1.0, None, "probability", "confidence", "as_is"),
        checkpoints=tuple(step / STEPS for step in CHECKPOINTS), at=np.array(CHECKPOINTS),
        prompts=tuple(map(str, range(PATHS))), split=np.full(PATHS, "train"), fate=np.full(PATHS, ""),
        a_star=np.full(PATHS, np.nan), guided=gain, base={1: np.zeros_like(gain)}, count=np.full(gain.shape, 24.0),
        prompt=np.arange(PATHS), main=np.ones(PATHS, dtype=bool), run_weight=np.full(PATHS, 2.0),
        features=features, whole=features[:, -1], data_hash="made-up",
    )  # fmt: skip


def net(exact: ExactToy, price: float, stops: dict[int, np.ndarray] | None) -> float:
    """Expected success less the price of all rows of a causal policy, exactly; None: the optimal one."""
    base = exact.committors("base")
    worth = exact.success - price * exact.rows(STEPS)
    for step in reversed(range(STEPS)):
        worth = exact.kernel(step, "guided") @ worth
        if step in CHECKPOINTS:
            stop = base[step] - price * exact.rows(step)
            worth = torch.maximum(worth, stop) if stops is None else torch.where(torch.tensor(stops[step]), stop, worth)
    return float(worth[exact.canvas.empty])


@pytest.mark.parametrize("seed", [3, 4])
def test_fitted_backward_induction_comes_close_to_optimal_stopping(seed):
    """It must close most of the gap between the best fixed cut and the optimum, at every price."""
    exact = toy(seed)
    data = data_of(exact, seed)
    head = fit_head(induce(data, 1, np.arange(PATHS), 0), 0, 60)
    closed = []
    for price in (0.0, 0.008, 0.016):
        stops = {step: head.advantage(head.predict(features_of(exact, step)), price) <= 0.0 for step in CHECKPOINTS}
        cuts = [
            {step: np.full(exact.canvas.states, step >= cut) for step in CHECKPOINTS} for cut in (*CHECKPOINTS, STEPS)
        ]
        fitted, optimal = net(exact, price, stops), net(exact, price, None)
        fixed = max(net(exact, price, cut) for cut in cuts)
        assert fixed - 1e-12 <= optimal
        assert fitted <= optimal + 1e-12
        assert fitted >= fixed - 0.003
        closed.append((fitted - fixed, optimal - fixed))
    assert sum(gain for gain, _ in closed) >= 0.7 * sum(room for _, room in closed)


def test_the_head_s_value_is_the_exact_remaining_value():
    exact = toy(3)
    data = data_of(exact, 5)
    head = fit_head(induce(data, 1, np.arange(PATHS), 0), 0, 60)
    states = paths(exact, 77)
    predicted = [head.predict(features_of(exact, step)[states[:, j]])[:, 0] for j, step in enumerate(CHECKPOINTS)]
    true = np.stack([exact.value()[step].numpy()[states[:, j]] for j, step in enumerate(CHECKPOINTS)])
    assert np.abs(np.stack(predicted) - true).mean() < 0.3 * np.abs(true - true.mean()).mean()


def test_the_risk_promise_holds_over_calibrations():
    """Each calibration draws prompts from a population of toys and measures them with 12 rollouts an arm. The setting
    that it certifies must lose less than eps over the whole population in at least 95 % of the calibrations.
    """
    population = [toy(seed, at_most=4) for seed in range(24)]
    curves = np.array([exact.switch_curve().numpy() for exact in population])
    settings = [(step / STEPS, 0.0) for step in (3, 2, 1)]
    true = {setting: float((curves[:, STEPS] - curves[:, round(setting[0] * STEPS)]).mean()) for setting in settings}
    rng = np.random.default_rng(0)
    column = next(eps for eps in MARGINS if eps > 1.3 * true[settings[0]])
    assert true[settings[1]] > column  # a rung that must be refused, or nothing is tested
    broken, certified, rounds = 0, 0, 300
    for _ in range(rounds):
        drawn = rng.integers(len(population), size=400)
        full = rng.binomial(12, np.clip(curves[drawn, STEPS], 0, 1)) / 12
        tested = []
        for setting in settings:
            kept = rng.binomial(12, np.clip(curves[drawn, round(setting[0] * STEPS)], 0, 1)) / 12
            tested.append((setting, full - kept))
        chosen = FixedSequenceTest.calibrate(tested).choose(column, 0.95).setting
        certified += chosen is not None
        broken += chosen is not None and true[chosen] > column
    assert certified > 0.3 * rounds
    assert broken <= (0.05 + 3 * (0.05 * 0.95 / rounds) ** 0.5) * rounds
