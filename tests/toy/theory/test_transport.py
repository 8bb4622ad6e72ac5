"""Local lift as a covariance (Eq. 6, Appendix A.3 and A.4), with the kernel and the delta that make it true.

The joint draw of all masked positions is the exponential tilt; the next state is its image. So
delta(x') = E[sum_j delta_j(v_j) | X' = x'] / temperature, not the committed token's own delta.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules, StepLaw, TieError, schedule
from gate_models.offline.toy.model import ToyCanvas, ToyTables, designed_tables, random_tables

EXACT = 1e-10
TABLES = random_tables(5)
LINEAR = {
    "probability": Rules(3),
    "margin": Rules(3, confidence="margin"),
    "neg_entropy": Rules(3, confidence="neg_entropy"),
    "random": Rules(3, order="random"),
    "position": Rules(3, confidence="position"),
    "conditional": Rules(3, order="conditional"),
    "plausible": Rules(3, order="conditional", plausibility=0.25),
    "cold": Rules(3, temperature=0.5),
    "two a step": Rules(2),
    "all at once": Rules(1),
}
STEPWISE = ["random", "position", "conditional"]
"""Orders that guidance does not move: their finite-w identities hold at every w."""


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def expectation(exact: ExactToy, scale: Tensor) -> Tensor:
    """F(w) [states] = E_{K_w}[q0_1(X_1) | X_0 = x]."""
    plan = schedule(exact.rules, exact.canvas, 0, 1)
    return exact.law.kernel(plan, "guided", scale) @ exact.committors("base")[1]


def slope(exact: ExactToy, scale: float) -> Tensor:
    """F'(w) [states] by automatic differentiation in float64."""
    weight = torch.tensor(scale, dtype=torch.float64)
    values, derivative = torch.func.jvp(lambda w: expectation(exact, w), (weight,), (torch.ones_like(weight),))[:2]
    assert values.dtype == torch.float64
    assert isinstance(derivative, torch.Tensor)
    return derivative


def covariance(kernel: Tensor, delta: Tensor, values: Tensor) -> Tensor:
    """Cov_K(delta, q') [states] for delta(x, x') [states, states]."""
    weighted = kernel * delta
    return weighted @ values - weighted.sum(-1) * (kernel @ values)


def joint_delta(exact: ExactToy, scale: float) -> tuple[Tensor, Tensor]:
    """K_w and delta(x, x') = E_w[sum over masked positions of delta_j(v_j) / temperature | X' = x']."""
    plan, law = schedule(exact.rules, exact.canvas, 0, 1), exact.law
    kernel = law.kernel(plan, "guided", scale)
    total = law.kernel(plan, "guided", scale, statistic=law.joint_delta())
    return kernel, torch.where(kernel > 0, total / kernel, 0.0)


def token_delta(tables: ToyTables, rules: Rules, centre: Tensor | None = None) -> Tensor:
    """delta(x, x') of the committed tokens alone, the obvious statistic; minus its mean under `centre` [.., L, A]."""
    canvas = tables.canvas
    delta = (tables.branch(conditional=True) - tables.branch(conditional=False)) / rules.temperature
    if centre is not None:
        delta = delta - (centre * delta).sum(-1, keepdim=True)
    digits = canvas.digits
    fresh = (digits[:, None] == canvas.alphabet) & (digits[None] != canvas.alphabet)
    token = digits.clamp(max=canvas.alphabet - 1)
    at = delta[torch.arange(canvas.states)[:, None, None], torch.arange(canvas.length), token[None]]
    return torch.where(fresh, at, 0.0).sum(-1)


@pytest.mark.parametrize("name", LINEAR)
def test_derivative_at_zero_is_the_base_covariance(name: str) -> None:
    """Eq. 6 at every state: F'(0) = Cov_K0(delta, q0_{t+1})."""
    exact = ExactToy(TABLES, LINEAR[name], one_a)
    kernel, delta = joint_delta(exact, 0.0)
    if LINEAR[name].order != "conditional":
        torch.testing.assert_close(kernel, exact.kernel(0, "base"), rtol=0, atol=1e-14)
    derivative = slope(exact, 0.0)
    torch.testing.assert_close(derivative, covariance(kernel, delta, exact.committors("base")[1]), rtol=0, atol=EXACT)
    assert float(derivative.abs().max()) > 0.01


def test_the_committed_tokens_delta_is_wrong_under_confidence_order() -> None:
    """The obvious statistic misses the derivative, centred or not: losing positions' tokens tilt the order too."""
    exact = ExactToy(TABLES, Rules(3), one_a)
    kernel, values = exact.kernel(0, "base"), exact.committors("base")[1]
    for centre in (None, TABLES.branch(conditional=True).softmax(-1)):
        obvious = covariance(kernel, token_delta(TABLES, exact.rules, centre), values)
        assert float((slope(exact, 0.0) - obvious).abs().max()) > 0.02


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_random_order_takes_the_token_delta_centred_per_position(scale: float) -> None:
    """Random order: F'(w) = Cov_w of the token's delta minus its mean under p_w at that position; raw it fails."""
    exact = ExactToy(TABLES, Rules(3, order="random"), one_a)
    plan, values = schedule(exact.rules, exact.canvas, 0, 1), exact.committors("base")[1]
    kernel = exact.law.kernel(plan, "guided", scale)
    conditional, unconditional = TABLES.branch(conditional=True), TABLES.branch(conditional=False)
    guided = (conditional + scale * (conditional - unconditional)).softmax(-1)
    derivative = slope(exact, scale)
    centred = covariance(kernel, token_delta(TABLES, exact.rules, guided), values)
    torch.testing.assert_close(derivative, centred, rtol=0, atol=EXACT)
    assert float((derivative - covariance(kernel, token_delta(TABLES, exact.rules), values)).abs().max()) > 0.01


def test_only_a_fixed_order_is_the_simple_tilt() -> None:
    """Appendix A.2: K_w(x'|x) is K0 exp(w delta) renormalised, with the token's delta, for a fixed order alone."""
    for rules, simple in (
        (Rules(3, confidence="position"), True),
        (Rules(3), False),
        (Rules(3, order="random"), False),
    ):
        exact = ExactToy(TABLES, rules, one_a)
        tilted = exact.kernel(0, "base") * torch.exp(rules.scale * token_delta(TABLES, rules))
        tilted = tilted / tilted.sum(-1, keepdim=True)
        gap = float((tilted - exact.kernel(0, "guided")).abs().max())
        assert gap < EXACT if simple else gap > 0.01


@pytest.mark.parametrize("name", [*STEPWISE, "probability", "margin"])
def test_finite_guidance_integrates_its_covariance(name: str) -> None:
    """Appendix A.3: F(w) - F(0) = integral of Cov_s(delta, q') ds where guidance does not move the commit order.

    Where it does, F jumps with the order: the integral of the covariance misses the jumps.
    """
    exact = ExactToy(TABLES, LINEAR[name], one_a)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    scale, values = exact.rules.scale, exact.committors("base")[1]
    integral = torch.zeros(exact.canvas.states, dtype=torch.float64)
    for node, weight in zip(0.5 * scale * (nodes + 1), 0.5 * scale * weights, strict=True):
        kernel, delta = joint_delta(exact, float(node))
        integral += weight * covariance(kernel, delta, values)
    ends = [expectation(exact, torch.tensor(w, dtype=torch.float64)) for w in (0.0, scale)]
    gap = float((ends[1] - ends[0] - integral).abs().max())
    assert gap < EXACT if name in STEPWISE else gap > 0.01


@pytest.mark.parametrize("rules", [Rules(3), Rules(3, order="guidance_boost"), Rules(2, temperature=0.5)], ids=str)
def test_covariance_is_the_local_slope_between_order_changes(rules: Rules) -> None:
    """F'(w) = Cov_w(delta, q') at w = 1.5, also for orders that guidance moves: between their jumps."""
    exact = ExactToy(TABLES, rules, one_a)
    kernel, delta = joint_delta(exact, 1.5)
    expected = covariance(kernel, delta, exact.committors("base")[1])
    torch.testing.assert_close(slope(exact, 1.5), expected, rtol=0, atol=EXACT)


def test_boost_order_does_not_tend_to_the_base_decoder() -> None:
    """Eq. 6 presumes K_w -> K0. Under guidance_boost weak guidance still picks the position: the lift is not O(w)."""
    exact = ExactToy(TABLES, Rules(3, order="guidance_boost"), one_a)
    plan = schedule(exact.rules, exact.canvas, 0, 1)
    weak = exact.law.kernel(plan, "guided", 1e-3)
    assert float((weak - exact.kernel(0, "base")).abs().sum(-1).max()) > 0.5
    with pytest.raises(TieError):
        exact.law.kernel(plan, "guided", 0.0)


@pytest.mark.parametrize("order", ["confidence", "random", "conditional"])
def test_tilt_collapse(order: str) -> None:
    """Appendix A.4: delta constant at every masked position gives Kg = K0 at every w; at one position it does not."""
    generator = np.random.default_rng(0)
    canvas = TABLES.canvas
    conditional = TABLES.branch(conditional=True)
    constant = torch.from_numpy(generator.normal(size=(canvas.states, canvas.length, 1)))
    for collapsed, everywhere in ((torch.ones(3, dtype=torch.bool), True), (torch.arange(3) == 0, False)):
        shifted = torch.where(collapsed[:, None], conditional - constant, TABLES.branch(conditional=False))
        law = StepLaw(with_unconditional(shifted), Rules(3, order=order))
        plan = schedule(law.rules, canvas, 0, 1)
        gap = max(float((law.kernel(plan, "guided", w) - law.kernel(plan, "base")).abs().max()) for w in (0.5, 8.0))
        assert gap < EXACT if everywhere else gap > 0.01


def with_unconditional(unconditional: Tensor) -> ToyTables:
    padding = TABLES.unconditional[..., TABLES.canvas.alphabet :]
    return ToyTables(TABLES.canvas, TABLES.conditional, torch.cat([unconditional, padding], -1))


def test_outcome_collapse() -> None:
    """Appendix A.4: where q0_{t+1} is constant on the successors no tilt lifts, yet a later step may.

    Left to right, success is the last letter, whose law ignores the rest: every earlier lift is exactly zero, S is flat
    and then jumps: the prompt is censored all the same. A zero lift now certifies no horizon.
    """
    canvas = ToyCanvas(3, 3)
    logits = np.random.default_rng(1).normal(size=(2, 3, 3))
    tables = designed_tables(canvas, lambda _: logits[0].tolist(), lambda _: logits[1].tolist())
    favoured = int((logits[0, 2] - logits[1, 2]).argmax())
    exact = ExactToy(tables, Rules(3, confidence="position"), lambda text: text[2] == favoured)
    base, laws = exact.committors("base"), exact.occupation()
    lifts = [exact.lift(base, step)[laws[step] > 0].abs().max() for step in range(3)]
    assert float(max(lifts[:2])) < EXACT < 0.05 < float(lifts[2])
    assert float((exact.kernel(0, "guided") - exact.kernel(0, "base")).abs().max()) > 0.05
    curve = exact.switch_curve()
    torch.testing.assert_close(curve[:3], curve[0].repeat(3), rtol=0, atol=EXACT)
    assert exact.horizon(0.02).censored
