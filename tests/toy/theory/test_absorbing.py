"""Appendix B: front-loading is a property of the schedule, and a horizon may be set by an upstream commit.

First the chain itself, then the same two facts on the decoded toy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from gate_models.offline.toy.absorbing_chain import AbsorbingChain, CoupledPair
from gate_models.offline.toy.exact_committor import ExactToy, horizon_of
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import ToyCanvas, designed_tables, random_tables

EXACT = 1e-10
FRONT = (0.7, 0.5, 0.3, 0.2, 0.1, 1.0)
FLAT = (1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2, 1.0)
LATE = (0.0, 0.0, 0.0, 0.0, 0.1, 1.0)


@pytest.mark.parametrize("hazards", [FRONT, FLAT, LATE])
@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_chain_is_a_martingale_with_the_same_budget(hazards: tuple[float, ...], q: float) -> None:
    """E[q_{t+1} | q_t] = q_t, and sum_t E[hazard_t q_t (1 - q_t)] = q (1 - q) whatever the hazards' shape."""
    chain = AbsorbingChain(q, hazards)
    for step in range(len(hazards)):
        torch.testing.assert_close(chain.kernel(step) @ chain.values, chain.values, rtol=0, atol=EXACT)
    assert sum(chain.spends()) == pytest.approx(q * (1 - q), abs=EXACT)
    variance = [float(chain.kernel(t)[0] @ chain.values.square() - q**2) for t in range(len(hazards))]
    laws = chain.laws()
    assert [float(laws[t][0]) * v for t, v in enumerate(variance)] == pytest.approx(chain.spends(), abs=EXACT)
    left = chain.option_left()
    assert [a - b for a, b in pairwise(left)] == pytest.approx(chain.spends(), abs=EXACT)
    assert left[-1] == pytest.approx(0.0, abs=EXACT)


def test_an_unfinished_chain_keeps_its_option() -> None:
    """Without a last sure commit the budget is not spent: what is left is q (1 - q) prod (1 - hazard)."""
    chain = AbsorbingChain(0.5, FRONT[:-1])
    left = 0.25 * 0.3 * 0.5 * 0.7 * 0.8 * 0.9
    assert chain.option_left()[-1] == pytest.approx(left, abs=EXACT)
    assert sum(chain.spends()) == pytest.approx(0.25 - left, abs=EXACT)


def test_front_loaded_hazards_give_an_early_horizon() -> None:
    """The step by which nine tenths of the option are spent: early for front-loaded, late for flat hazards."""

    def spent_by(hazards: tuple[float, ...]) -> int:
        left = AbsorbingChain(0.5, hazards).option_left()
        return next(t for t, value in enumerate(left) if value <= 0.1 * left[0])

    assert [spent_by(h) for h in (FRONT, FLAT, LATE)] == [4, 6, 6]


@pytest.mark.parametrize("at", [0, 2, 4])
def test_coupled_horizon_is_the_upstream_commit(at: int) -> None:
    """a*(2) = T_1 + 1 step: guidance withdrawn before coordinate 1 commits drags 2 down, later it does not."""
    pair = CoupledPair(tuple(float(step == at) for step in range(6)), guided=0.9, base=0.2, high=0.95, low=0.05)
    curve = pair.switch_curve()
    assert horizon_of(curve, 0.01).step == at + 1
    assert float(curve[-1] - curve[at]) == pytest.approx(0.7 * 0.9, abs=EXACT)
    torch.testing.assert_close(curve[at + 1 :], curve[-1].expand(6 - at), rtol=0, atol=EXACT)


def test_coupled_switch_curve_is_the_upstream_hazard() -> None:
    """Random T_1: S(T) - S(t) = (guided - base)(high - low) P(T_1 >= t)."""
    pair = CoupledPair(FRONT, guided=0.9, base=0.2, high=0.95, low=0.05)
    open_ = torch.tensor([float(law[0]) for law in AbsorbingChain(0.5, FRONT).laws()], dtype=torch.float64)
    curve = pair.switch_curve()
    torch.testing.assert_close(curve[-1] - curve, 0.7 * 0.9 * open_, rtol=0, atol=EXACT)


def spends(exact: ExactToy) -> list[float]:
    base, laws = exact.committors("base"), exact.occupation("base")
    out = []
    for step in range(exact.steps):
        kernel, following = exact.kernel(step, "base"), base[step + 1]
        out.append(float(laws[step] @ (kernel @ following.square() - (kernel @ following).square())))
    return out


def test_the_decoders_order_is_the_hazard() -> None:
    """One relevant position whose law ignores the rest: the commit order alone places the budget.

    Random order is the flat hazard 1 / (L - t), left to right with the relevant position first or last is all at once.
    """
    canvas, odds = ToyCanvas(3, 4), random_tables(0).conditional[0, 0, :3]
    flat = designed_tables(canvas, lambda _: [odds.tolist()] * 4)
    q = float(odds.softmax(-1)[0])
    budget = q * (1 - q)
    places = {"random": (0, [budget / 4] * 4), "first": (0, [budget, 0, 0, 0]), "last": (3, [0, 0, 0, budget])}
    for name, (place, expected) in places.items():
        rules = Rules(4, order="random") if name == "random" else Rules(4, confidence="position")
        exact = ExactToy(flat, rules, lambda text: text[place] == 0)  # noqa: B023
        assert spends(exact) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("upstream", [0, 1, 2])
def test_a_downstream_horizon_is_bound_upstream(upstream: int) -> None:
    """The decoded pair: success is the last letter, guidance has no direction there, a* is the upstream commit's step.

    Left to right, the upstream letter is committed at step `upstream`; the last letter copies it with high probability.
    """
    canvas = ToyCanvas(3, 4)

    def rows(state: tuple[int | None, ...], tilt: float) -> Sequence[Sequence[float]]:
        logits = [[0.0, 0.1, 0.2] for _ in range(4)]
        logits[upstream] = [-1.0 - tilt, 0.0, 0.3]
        logits[3] = [3.0 if state[upstream] == 0 else -3.0, 0.0, 0.1]
        return logits

    tables = designed_tables(canvas, lambda state: rows(state, 0.0), lambda state: rows(state, 1.5))
    exact = ExactToy(tables, Rules(4, scale=2.0, confidence="position"), lambda text: text[3] == 0)
    curve: Tensor = exact.switch_curve()
    assert exact.horizon(0.01).step == upstream + 1
    torch.testing.assert_close(curve[: upstream + 1], curve[0].expand(upstream + 1), rtol=0, atol=EXACT)
    torch.testing.assert_close(curve[upstream + 1 :], curve[-1].expand(4 - upstream), rtol=0, atol=EXACT)
    assert float(curve[-1] - curve[0]) > 0.3
