"""The martingale root (Section 4.1) and its corollaries (Appendix A.1 and A.5), to 1e-10."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Phase, Rules
from gate_models.offline.toy.model import random_tables

EXACT = 1e-10
TABLES = random_tables(4, length=4)
RULES = {
    "confidence": Rules(4),
    "random": Rules(4, order="random"),
    "margin, cold": Rules(4, confidence="margin", temperature=0.5),
    "T < L": Rules(2),
    "T > L": Rules(6, order="guidance_boost"),
    "nucleus": Rules(4, top_p=0.75),
    "tail of 3": Rules(4, tail_width=3),
}


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


@pytest.fixture(params=RULES)
def exact(request: pytest.FixtureRequest) -> ExactToy:
    return ExactToy(TABLES, RULES[request.param], one_a)


def test_committor_is_success_along_all_paths(exact: ExactToy) -> None:
    """q0_0 summed over trajectories forwards is the q0_0 of the backward recursion (Section 3.2)."""
    ends: tuple[tuple[Phase, int], ...] = (("base", 0), ("guided", exact.steps))
    for phase, handoff in ends:
        forwards = sum(mass * float(exact.success[path[-1]]) for path, mass in exact.paths(handoff).items())
        assert forwards == pytest.approx(float(exact.committors(phase)[0][exact.canvas.empty]), abs=EXACT)


def test_backward_equation_holds_under_base_and_not_under_guidance(exact: ExactToy) -> None:
    """Backward equation: q0_t(x) = sum_x' K0_t(x'|x) q0_{t+1}(x'), with q0_t from the forward law started at x."""
    base = exact.committors("base")
    worst = 0.0
    for step in range(exact.steps):
        terminal = torch.eye(exact.canvas.states, dtype=torch.float64)
        for later in range(step, exact.steps):
            terminal = terminal @ exact.kernel(later, "base")
        forwards = terminal @ exact.success
        backwards = exact.kernel(step, "base") @ base[step + 1]
        torch.testing.assert_close(backwards, forwards, rtol=0, atol=EXACT)
        worst = max(worst, float((exact.kernel(step, "guided") @ base[step + 1] - forwards).abs().max()))
    assert worst > 0.05


Stop = Callable[[int, Tensor], Tensor]


def stopped_mean(exact: ExactToy, values: list[Tensor], stop: Stop, phase: Phase = "base") -> float:
    """E[q_tau(X_tau)] for tau = the first t at which `stop(t, q_t)` [states] holds, at the latest T."""
    running, total = exact.occupation()[0], 0.0
    for step, value in enumerate(values):
        halts = stop(step, value) if step < exact.steps else torch.ones_like(value, dtype=torch.bool)
        total += float(running[halts] @ value[halts])
        if step < exact.steps:
            running = running.masked_fill(halts, 0.0) @ exact.kernel(step, phase)
    return total


STOPS: dict[str, Stop] = {
    "resolved": lambda _, q: (q - 0.5).abs() > 0.35,
    "falls": lambda t, q: (q < 0.3) & (torch.tensor(t) > 0),
    "an a is there": lambda _, q: (TABLES.canvas.digits == 0).any(-1),
    "never": lambda _, q: torch.zeros_like(q, dtype=torch.bool),
}


@pytest.mark.parametrize("name", STOPS)
def test_optional_stopping(exact: ExactToy, name: str) -> None:
    """Optional stopping: E0[q_tau(X_tau)] = q0 for a stopping time; under guidance, or looking ahead, it is not."""
    base = exact.committors("base")
    start = float(base[0][exact.canvas.empty])
    assert stopped_mean(exact, base, STOPS[name]) == pytest.approx(start, abs=EXACT)
    assert abs(stopped_mean(exact, base, STOPS["never"], "guided") - start) > 1e-3
    best = sum(m * max(float(base[t][x]) for t, x in enumerate(path)) for path, m in exact.paths(0).items())
    assert best > start + 0.01


def test_variance_budget(exact: ExactToy) -> None:
    """Variance budget: sum_t E0[Var0(q_{t+1} | X_t)] = q0 (1 - q0); the guided law spends another sum."""
    base = exact.committors("base")
    q = float(base[0][exact.canvas.empty])
    assert spent(exact, exact.occupation("base"), base) == pytest.approx(q * (1 - q), abs=EXACT)
    assert abs(spent(exact, exact.occupation("guided"), base) - q * (1 - q)) > 1e-3


def spent(exact: ExactToy, laws: list[Tensor], base: list[Tensor]) -> float:
    total = 0.0
    for step in range(exact.steps):
        kernel, following = exact.kernel(step, "base"), base[step + 1]
        total += float(laws[step] @ (kernel @ following.square() - (kernel @ following).square()))
    return total


def test_increments_are_orthogonal_under_base(exact: ExactToy) -> None:
    """Doob decomposition: E0[dM_s dM_t] = 0 for s != t; under the guided law increments of q0 drift and correlate."""
    base = exact.committors("base")
    moments = increments(exact, base, handoff=0)
    off_diagonal = moments - torch.diag(moments.diagonal())
    assert float(off_diagonal.abs().max()) < EXACT
    guided = increments(exact, base, handoff=exact.steps)
    assert float((guided - torch.diag(guided.diagonal())).abs().max()) > 1e-3


def increments(exact: ExactToy, base: list[Tensor], handoff: int) -> Tensor:
    """E[dq_s dq_t] [T, T] over trajectories."""
    total = torch.zeros(exact.steps, exact.steps, dtype=torch.float64)
    for path, mass in exact.paths(handoff).items():
        values = torch.tensor([float(base[t][x]) for t, x in enumerate(path)], dtype=torch.float64)
        total += mass * torch.outer(values.diff(), values.diff())
    return total


def test_intervention_succeeds_with_the_committor(exact: ExactToy) -> None:
    """Recovery identity: do(X_t = x') and base after it succeeds with q0_t(x'), also where no run goes."""
    base = exact.committors("base")
    step = 1
    assert bool(((exact.occupation("base")[step] == 0) & (exact.occupation("guided")[step] == 0))[::17].any())
    for state in range(0, exact.canvas.states, 17):
        law = torch.zeros(exact.canvas.states, dtype=torch.float64)
        law[state] = 1.0
        for later in range(step, exact.steps):
            law = law @ exact.kernel(later, "base")
        assert float(law @ exact.success) == pytest.approx(float(base[step][state]), abs=EXACT)
        assert float(law.sum()) == pytest.approx(1.0, abs=EXACT)
