"""Switch curve, horizon and gates (Definition 1, Sections 3.3 and 4.3, Appendix A.5), to 1e-10."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gate_models.offline.toy.exact_committor import ExactToy, Horizon, horizon_of
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import random_tables

EXACT = 1e-10
TABLES = random_tables(3, length=4)
RULES = {
    "confidence": Rules(4),
    "boost": Rules(4, order="guidance_boost"),
    "random": Rules(4, order="random"),
    "T < L": Rules(2),
    "T > L": Rules(6),
    "tail of 2": Rules(4, order="guidance_boost", tail_width=2),
    "wide guidance": Rules(4, guided_width=2),
}


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


@pytest.fixture(params=RULES)
def exact(request: pytest.FixtureRequest) -> ExactToy:
    return ExactToy(TABLES, RULES[request.param], one_a)


def test_switch_curve_is_the_success_of_switching_runs(exact: ExactToy) -> None:
    """S(t) = E^g[q0_t(X_t)], and its ends are the base decoder and full CFG."""
    curve = exact.switch_curve()
    for handoff in range(exact.steps + 1):
        assert float(exact.outcomes(handoff) @ exact.success) == pytest.approx(float(curve[handoff]), abs=EXACT)
    assert float(curve.max() - curve.min()) > 0.02


def test_cost_of_switching_is_the_mean_remaining_value(exact: ExactToy) -> None:
    """V-link: S(T) - S(t) = E^g[V_t(X_t)]; states of the same step differ widely in V (ensemble versus state)."""
    curve, laws, value = exact.switch_curve(), exact.occupation(), exact.value()
    spread = 0.0
    for step in range(exact.steps + 1):
        assert float(curve[-1] - curve[step]) == pytest.approx(float(laws[step] @ value[step]), abs=EXACT)
        visited = value[step][laws[step] > 1e-3]
        spread = max(spread, float(visited.max() - visited.min()))
    assert spread > 0.1


def test_value_is_accumulated_local_transport(exact: ExactToy) -> None:
    """Accumulated transport: V_t(x) = E^g[sum_{s >= t} lift_s(X_s) | X_t = x], and summed over the run S(T) - S(t)."""
    base, value, laws = exact.committors("base"), exact.value(), exact.occupation()
    curve, tail = exact.switch_curve(), torch.zeros(exact.canvas.states, dtype=torch.float64)
    for step in reversed(range(exact.steps)):
        tail = exact.lift(base, step) + exact.kernel(step, "guided") @ tail
        torch.testing.assert_close(value[step], tail, rtol=0, atol=EXACT)
        assert float(curve[-1] - curve[step]) == pytest.approx(float(laws[step] @ tail), abs=EXACT)
    now = exact.lift(base, 0)[exact.canvas.empty]
    assert abs(float(now - value[0][exact.canvas.empty])) > 1e-3


def test_transport_sum_needs_the_tails_own_committor() -> None:
    """Telescoping holds for any tail's q0 as long as the lift is taken against that same q0, wide tails included."""
    exact = ExactToy(TABLES, RULES["tail of 2"], one_a)
    serial, wide = exact.committors("base", 1), exact.committors("base", 2)
    laws = exact.occupation()
    total = {
        name: sum(float(laws[t] @ exact.lift(q, t)) for t in range(exact.steps))
        for name, q in (("serial", serial), ("wide", wide))
    }
    curve = exact.switch_curve(2)
    assert total["wide"] == pytest.approx(float(curve[-1] - curve[0]), abs=EXACT)
    assert abs(total["serial"] - total["wide"]) > 1e-3


def test_horizon_is_monotone_in_the_tolerance(exact: ExactToy) -> None:
    """Appendix A.5: a wider band never moves a* later; a* <= T; the band of 1 is safe at once."""
    steps = [exact.horizon(eps).step for eps in (1e-6, 0.01, 0.03, 0.1, 0.2, 0.4, 1.0)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 0
    assert steps[0] <= exact.steps


def test_horizon_persists() -> None:
    """Definition 1 asks for every later step: a first crossing before a later dip does not count."""
    curve = torch.tensor([0.1, 0.8, 0.3, 0.79, 0.8], dtype=torch.float64)
    assert horizon_of(curve, 0.05) == Horizon(3, False)
    assert horizon_of(torch.tensor([0.1, 0.2, 0.3, 0.9]), 0.05) == Horizon(3, True)
    assert horizon_of(torch.tensor([0.88, 0.9, 0.87, 0.9]), 0.05) == Horizon(0, False)
    exact = ExactToy(random_tables(7, length=4), Rules(4), one_a)
    real = exact.switch_curve()
    assert bool(real[0] > real[-1])
    assert exact.horizon(0.05) == Horizon(4, True)


def test_hopeless_prompts_have_horizon_zero() -> None:
    """Nothing to gain is a* = 0, not censoring, whether S is flat at zero or flat at a low level (Appendix A.5)."""
    hopeless = ExactToy(TABLES, Rules(4), lambda text: False)
    assert hopeless.switch_curve().abs().max() == 0
    assert hopeless.horizon(1e-6) == Horizon(0, False)
    rare = ExactToy(TABLES, Rules(4), lambda text: text == (0, 0, 0, 0))
    assert 0 < float(rare.switch_curve().max()) < 0.05
    assert rare.horizon(0.05) == Horizon(0, False)
    born = ExactToy(TABLES, Rules(4), lambda text: text != (0, 0, 0, 0))
    assert born.horizon(0.05) == Horizon(0, False)


def test_commit_order_changes_guidance_and_its_horizon() -> None:
    """qg, S and a* are properties of the order; q0 is not, for base steps know no guided order.

    Only a different base order (here random) moves q0.
    """
    tables = random_tables(5, length=4)
    confidence, boost, random = (
        ExactToy(tables, Rules(4, order=order), one_a) for order in ("confidence", "guidance_boost", "random")
    )
    empty = tables.canvas.empty
    base = [toy.committors("base")[0][empty] for toy in (confidence, boost, random)]
    guided = [toy.committors("guided")[0][empty] for toy in (confidence, boost, random)]
    assert [round(float(value), 3) for value in (*base[:2], *guided[:2])] == [0.110, 0.110, 0.835, 0.115]
    assert float(base[0] - base[1]) == 0.0
    assert abs(float(base[0] - base[2])) > 0.01
    assert min(abs(float(guided[i] - guided[j])) for i, j in ((0, 1), (0, 2), (1, 2))) > 0.01
    assert confidence.horizon(0.05) == Horizon(4, True)
    assert boost.horizon(0.05) == Horizon(0, False)


Stops = Callable[[int, Tensor], Tensor]
"""(t, states [n]) -> whether the gate hands off on seeing state x at step t."""

GATES: dict[str, Stops] = {
    "an a is there": lambda t, digits: (digits == 0).any(-1),
    "the third place is taken": lambda t, digits: digits[:, 2] < 3,
    "a clock": lambda t, digits: torch.full((len(digits),), t >= 1),
}


@pytest.mark.parametrize("gate", GATES)
def test_a_causal_gate_costs_its_mean_value(exact: ExactToy, gate: str) -> None:
    """Optional stopping under guidance: S(T) - S(tau) = E^g[V_tau(X_tau)], with S(tau) from the gated chain itself."""
    value, digits = exact.value(), exact.canvas.digits
    guided, handed, cost = exact.occupation()[0], torch.zeros(exact.canvas.states, dtype=torch.float64), 0.0
    for step in range(exact.steps):
        fires = GATES[gate](step, digits)
        cost += float((guided * fires) @ value[step])
        handed, guided = handed + guided * fires, guided * ~fires
        handed, guided = handed @ exact.kernel(step, "base"), guided @ exact.kernel(step, "guided")
    gated = float((handed + guided) @ exact.success)
    full = float(exact.switch_curve()[-1])
    assert full - gated == pytest.approx(cost, abs=EXACT)
    assert float(handed.sum()) > 0.01


def test_a_whole_run_gate_breaks_the_identity(exact: ExactToy) -> None:
    """A gate that reads the finished run picks steps by its future: E^g[qg_sigma(X_sigma)] is no longer S(T).

    The leaking gate takes the last step at which the run's q0 was highest. Judged on the run that it read, handing off
    would even beat full CFG; a fresh run that hands off there does not.
    """
    base, guided = exact.committors("base"), exact.committors("guided")
    full, leaked, promised = float(exact.switch_curve()[-1]), 0.0, 0.0
    for path, mass in exact.paths(exact.steps).items():
        values = [float(base[t][x]) for t, x in enumerate(path)]
        best = max(range(len(path)), key=lambda t: (values[t], t))
        leaked += mass * float(guided[best][path[best]])
        promised += mass * values[best]
    assert abs(leaked - full) > 0.01
    assert promised > float(exact.switch_curve().max()) + 0.01
