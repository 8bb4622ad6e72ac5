"""Ideal conditioning (Appendix A.2 and A.6): the Doob kernel, its one-step utility, and when CFG is it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from decoding.sampling import commit_order
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import NEVER, ToyTables, random_tables
from tests.toy.decoder.decoder_runs import POSITION, decode

EXACT = 1e-10
TABLES = random_tables(6)
SCALE = 1.5


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def doob(exact: ExactToy, base: list[Tensor], step: int) -> Tensor:
    """K_D(x'|x) = K0(x'|x) q0_{t+1}(x') / q0_t(x); rows of q0_t(x) = 0 are left zero."""
    kernel = exact.kernel(step, "base") * base[step + 1]
    return torch.where(base[step][:, None] > 0, kernel / base[step][:, None], 0.0)


@pytest.mark.parametrize(
    "rules", [Rules(3), Rules(3, order="random"), Rules(2), Rules(4, confidence="margin")], ids=str
)
def test_utility_of_the_doob_kernel(rules: Rules) -> None:
    """One-step utility: it is a kernel, gains Var0(q0_{t+1} | x) / q0_t(x) a step, and its chain succeeds."""
    exact = ExactToy(TABLES, rules, one_a)
    base = exact.committors("base")
    law = exact.occupation()[0]
    for step in range(exact.steps):
        ideal, kernel, following = doob(exact, base, step), exact.kernel(step, "base"), base[step + 1]
        open_ = base[step] > 0
        torch.testing.assert_close(ideal.sum(-1)[open_], torch.ones_like(base[step][open_]), rtol=0, atol=EXACT)
        gain = (ideal @ following - base[step])[open_]
        variance = (kernel @ following.square() - (kernel @ following).square())[open_]
        torch.testing.assert_close(gain, variance / base[step][open_], rtol=0, atol=EXACT)
        guided_gain = exact.lift(base, step)[open_]
        assert float((guided_gain - variance / base[step][open_]).abs().max()) > 0.01
        law = law @ ideal
    assert float(law @ exact.success) == pytest.approx(1.0, abs=EXACT)


def bridge(slope: float) -> ToyTables:
    """Tables whose guidance at w = SCALE is w delta = slope log q0_{t+1} + c at the leftmost mask.

    q0 rests on the conditional table alone, and left to right with T = L the number of masks tells the step.
    """
    exact = ExactToy(TABLES, Rules(3, confidence="position"), one_a)
    base, canvas = exact.committors("base"), TABLES.canvas
    unconditional = TABLES.unconditional.clone()
    for state in range(canvas.states):
        tokens = canvas.tokens(state)
        masked = [i for i, token in enumerate(tokens) if token is None]
        if not masked:
            continue
        following = base[canvas.length - len(masked) + 1]
        for letter in range(canvas.alphabet):
            child = canvas.number(letter if i == masked[0] else token for i, token in enumerate(tokens))
            gauge = 0.3 * state / canvas.states
            log_q = float(following[child].log().clamp(min=NEVER))
            delta = (slope * log_q + gauge) / SCALE
            unconditional[state, masked[0], letter] = TABLES.conditional[state, masked[0], letter] - delta
    return ToyTables(canvas, TABLES.conditional, unconditional)


@pytest.mark.parametrize(("slope", "equal"), [(1.0, True), (2.0, False), (0.5, False)])
def test_guidance_is_the_doob_kernel_at_slope_one_only(slope: float, equal: bool) -> None:
    """Appendix A.6: Kg = K_D iff w delta = log q0_{t+1} + c; an affine relation of another slope is not enough."""
    exact = ExactToy(bridge(slope), Rules(3, scale=SCALE, confidence="position"), one_a)
    base, laws = exact.committors("base"), exact.occupation()
    gap = utility = 0.0
    for step in range(3):
        visited = (laws[step] > 0) & (base[step] > 0)
        difference = exact.kernel(step, "guided") - doob(exact, base, step)
        gap = max(gap, float(difference[visited].abs().max()))
        kernel, following = exact.kernel(step, "base"), base[step + 1]
        variance = kernel @ following.square() - (kernel @ following).square()
        missed = exact.lift(base, step)[visited] - variance[visited] / base[step][visited]
        utility = max(utility, float(missed.abs().max()))
    assert max(gap, utility) < EXACT if equal else min(gap, utility) > 0.01


def test_the_decoder_decodes_the_doob_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by the real engine, guidance along log q0 succeeds every time, where base succeeds as often as q0 says."""
    monkeypatch.setitem(commit_order.CONFIDENCE_KINDS, "position", POSITION)
    rules = Rules(3, scale=SCALE, confidence="position")
    tables = bridge(1.0)
    start = float(ExactToy(tables, rules, one_a).committors("base")[0][-1])
    assert all(one_a(outcome.tokens) for outcome in decode(tables, rules, None, 400))
    hits = sum(one_a(outcome.tokens) for outcome in decode(tables, rules, 0, 400))
    assert abs(hits / 400 - start) < 4 * (start * (1 - start) / 400) ** 0.5
    assert 0.2 < start < 0.8


@pytest.mark.parametrize(
    ("rules", "escapes"),
    [
        (Rules(3, confidence="position"), False),
        (Rules(3, order="random"), False),
        (Rules(3), True),
        (Rules(3, order="guidance_boost"), True),
    ],
    ids=str,
)
def test_tilts_keep_the_support_of_draws_not_of_next_states(rules: Rules, escapes: bool) -> None:
    """Appendix A.2's support caveat holds for draws; for next states only where guidance leaves the order alone.

    A token that base never draws is never committed under guidance either. But a (position, token) that base can draw
    and never ranks first may win under guidance: with confidence order Kg leaves the support of K0.
    """
    conditional = TABLES.conditional.clone()
    conditional[:, 1, 0] = NEVER
    exact = ExactToy(ToyTables(TABLES.canvas, conditional, TABLES.unconditional), rules, one_a)
    base, guided = exact.kernel(0, "base"), exact.kernel(0, "guided")
    outside = guided.masked_fill(base > 0, 0.0).sum(-1)
    assert float(outside.max()) > 0.05 if escapes else float(outside.max()) == 0.0
    digits = exact.canvas.digits
    drawn_a = (digits[:, None, 1] != 0) & (digits[None, :, 1] == 0)
    assert float(guided[drawn_a].max()) == 0.0
    assert float((guided - base).abs().max()) > 0.05
