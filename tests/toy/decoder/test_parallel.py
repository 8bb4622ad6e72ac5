"""Handoff safety is not parallel safety (Appendix A.7): the two-hop proposition and the {X, Y} counterexample."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import NEVER, ToyCanvas, ToyTables, designed_tables, random_tables
from tests.toy.decoder.decoder_runs import decode

X, Y, Z = 0, 1, 2
EXACT = 1e-10
PAIR = ToyCanvas(3, 2)


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def exactly_one_of_xy(text: tuple[int, ...]) -> bool:
    return (X in text) != (Y in text)


def pair_tables(strength: float) -> ToyTables:
    """Two positions: X or Y while both are masked; beside an X never a Y, and the other way round.

    `strength` is how far below the rest an excluded token lies. Guidance speaks for X and against nothing else.
    """

    def conditional(canvas: tuple[int | None, ...]) -> Sequence[Sequence[float]]:
        rows = []
        for position in range(2):
            other = canvas[1 - position]
            row = [0.1 * (position + 1), 0.0, -strength]
            if other == X:
                row = [0.3, -strength, 0.5]
            elif other == Y:
                row = [-strength, 0.3, 0.5]
            elif other == Z:
                row = [0.2, 0.1, -strength]
            rows.append(row)
        return rows

    def unconditional(canvas: tuple[int | None, ...]) -> Sequence[Sequence[float]]:
        return [[row[0] - 0.2, row[1], row[2]] for row in conditional(canvas)]

    return designed_tables(PAIR, conditional, unconditional)


def test_handoff_safe_is_not_parallel_safe() -> None:
    """The {X, Y} prompt: a* = 0 under serial decoding and base handoff is safe; filling both at once is not.

    Softmax never excludes a token entirely, so q0 is near one, not one: values are compared.
    """
    exact = ExactToy(pair_tables(6.0), Rules(2, scale=1.0), exactly_one_of_xy)
    both = exact.canvas.empty
    serial, wide = exact.committors("base", 1)[0][both], exact.committors("base", 2)[0][both]
    guided = exact.committors("guided")[0][both]
    assert 0.99 < float(serial) < 1.0
    assert abs(float(guided - serial)) < 0.01
    assert exact.horizon(0.02).step == 0
    assert float(wide) < float(serial) - 0.4
    assert exact.horizon(0.02, tail_width=2).step == 1
    branched = [exact.canvas.number(canvas) for canvas in ((X, None), (None, X), (Y, None), (None, Y))]
    tails = [exact.committors("base", width)[1][branched] for width in (1, 2)]
    torch.testing.assert_close(tails[0], tails[1], rtol=0, atol=EXACT)


@pytest.mark.parametrize(("width", "handoff"), [(1, 0), (2, 0), (2, 1)])
def test_the_decoder_shows_the_counterexample(width: int, handoff: int) -> None:
    """The real engine's success at K = 1 and 2, branching while both are masked and after one is set; z < 4."""
    rules = Rules(2, scale=1.0, tail_width=width)
    expected = float(ExactToy(pair_tables(6.0), rules, exactly_one_of_xy).switch_curve()[handoff])
    count = 500
    outcomes = decode(pair_tables(6.0), rules, handoff, count)
    hits = sum(exactly_one_of_xy(outcome.tokens) for outcome in outcomes)
    assert abs(hits / count - expected) < 4 * (expected * (1 - expected) / count) ** 0.5


class TwoHop:
    """Macro-steps of `width` positions from the empty canvas: parallel kernel, serial composition, and the bound."""

    def __init__(self, tables: ToyTables, rules: Rules, width: int, success: object = one_a) -> None:
        exact = ExactToy(tables, rules, success)  # type: ignore[arg-type]
        starts = range(0, rules.steps, width)
        self.parallel = [exact.kernel(step, "base", width) for step in starts]
        self.serial = [compose([exact.kernel(s, "base", 1) for s in range(t, t + width)]) for t in starts]
        values = [exact.success]
        for kernel in reversed(self.serial):
            values.append(kernel @ values[-1])
        self.value = values[::-1]
        law, self.laws = exact.occupation()[0], []
        for kernel in self.parallel:
            self.laws.append(law)
            law = law @ kernel
        self.gap = abs(float(law @ exact.success - self.laws[0] @ self.value[0]))
        self.exact = exact

    def bound(self, *, union: bool) -> float:
        """Sum over macro-steps of E_rho[oscillation of the serial value over both supports, or over their overlap]."""
        total = 0.0
        for step, law in enumerate(self.laws):
            p, s = self.parallel[step] > 0, self.serial[step] > 0
            total += float(law @ oscillation(self.value[step + 1], p | s if union else p & s))
        return total


def compose(kernels: list[Tensor]) -> Tensor:
    out = kernels[0]
    for kernel in kernels[1:]:
        out = out @ kernel
    return out


def oscillation(value: Tensor, support: Tensor) -> Tensor:
    """[states]: largest minus smallest value over each row's support, 0 where it is empty."""
    high = value.expand_as(support).masked_fill(~support, -torch.inf).amax(-1)
    low = value.expand_as(support).masked_fill(~support, torch.inf).amin(-1)
    return (high - low).clamp(min=0.0)


@pytest.mark.parametrize("seed", range(4))
def test_two_hop_bound(seed: int) -> None:
    """|q^P - q^0| <= sum_s eps_s with the union of both supports, and with the handoff gap the distance to qg."""
    tables = random_tables(seed, length=4)
    for width, order in itertools.product((2, 4), ("confidence", "random")):
        hop = TwoHop(tables, Rules(4, order=order), width)
        assert 1e-4 < hop.gap <= hop.bound(union=True) + EXACT
        guided = float(hop.exact.committors("guided")[0][-1])
        serial = float(hop.value[0][-1])
        parallel = float(hop.exact.committors("base", width)[0][-1])
        assert abs(parallel - serial) == pytest.approx(hop.gap, abs=EXACT)
        assert parallel >= guided - (max(0.0, guided - serial) + hop.bound(union=True)) - EXACT


def test_the_intersection_of_supports_bounds_nothing() -> None:
    """Flatness where both kernels land misses the product states: {X, Y} exceeds the intersection's bound of 0."""
    hop = TwoHop(pair_tables(-NEVER), Rules(2, scale=1.0), 2, exactly_one_of_xy)
    assert hop.gap > 0.4
    assert hop.bound(union=False) < EXACT
    assert hop.gap <= hop.bound(union=True)
