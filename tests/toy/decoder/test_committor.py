"""The committor estimators against exact values on the toy: whole, truncated, coupled (Section 3.2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoding.engine.handle import DecodingResult
from gate_models.committor.choices import Coupling
from gate_models.committor.committor import BASE, GUIDED, Arm, Committor, State, cell_jobs, collect
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Phase, Rules, schedule
from gate_models.offline.toy.model import random_tables
from gate_models.statistics.intervals import mean_interval
from tests.toy.decoder.decoder_runs import Verdict, engine_of, finish, job_of, wilson

TABLES = random_tables(3, length=4, spread=0.6)
RULES = Rules(4)
CANVAS = (None, 1, None, None)
STEP = 1
COUNT = 300
CONFIDENCE = 0.9999
PHASES: tuple[Phase, ...] = ("base", "guided")


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def judge(content: tuple[int, ...]) -> Verdict:
    return Verdict(one_a(content), content.count(0) / len(content))


def state(rules: Rules = RULES) -> State:
    canvas = tuple(TABLES.mask_id if token is None else token for token in CANVAS)
    return State(job_of(TABLES, rules, None), canvas, STEP, "toy")


def measured(
    arms: tuple[Arm, ...],
    count: int,
    *,
    coupling: Coupling = "independent",
    fill_after: int | None = None,
    rules: Rules = RULES,
) -> tuple[Committor, list[DecodingResult]]:
    engine = engine_of(TABLES)
    planned = [cell_jobs(state(rules), arm, count, coupling=coupling, fill_after=fill_after) for arm in arms]
    outcomes = finish(engine, engine.submit_all([job for jobs in planned for job in jobs]))
    cells = {
        arm.name: collect(arm, outcomes[index * count : (index + 1) * count], judge) for index, arm in enumerate(arms)
    }
    return Committor(cells, coupling), outcomes


def exact(phase: str, width: int | None = None) -> float:
    toy = ExactToy(TABLES, RULES, one_a)
    return float(toy.committors("guided" if phase == "guided" else "base", width)[STEP][toy.canvas.number(CANVAS)])


@pytest.mark.parametrize("coupling", ["independent", "common", "antithetic"])
def test_cells_estimate_the_exact_committors(coupling: Coupling) -> None:
    """Coupled or not, each arm alone is unbiased: q0, qg and the served tail's q0."""
    estimate, _ = measured((BASE, GUIDED, Arm(False, 3)), COUNT, coupling=coupling)
    for arm, expected in (("base", exact("base")), ("guided", exact("guided")), ("base-k3", exact("base", 3))):
        low, high = wilson(estimate.cells[arm].successes, COUNT, CONFIDENCE)
        assert low <= expected <= high, arm
    value = estimate.value(confidence=CONFIDENCE)
    assert value.low <= exact("guided") - exact("base") <= value.high
    assert value.method == {"independent": "newcombe", "common": "newcombe_paired", "antithetic": "student_t"}[coupling]


def test_common_numbers_reduce_the_variance_of_v() -> None:
    """Under weak guidance the arms' outcomes mostly agree, and V is far more certain than of independent cells."""
    width = {}
    couplings: tuple[Coupling, ...] = ("independent", "common")
    for coupling in couplings:
        estimate, _ = measured((BASE, GUIDED), COUNT, coupling=coupling, rules=Rules(4, scale=0.3))
        value = estimate.value()
        width[coupling] = value.high - value.low
    assert width["common"] < 0.75 * width["independent"]


def test_mirrored_pairs_share_a_key_and_nothing_else_does() -> None:
    jobs = cell_jobs(state(), BASE, 6, coupling="antithetic")
    first, second, third, *_ = [job.noise.uniforms(0, 4) for job in jobs]
    assert np.allclose(first + second, 1.0)
    assert not np.allclose(first, third)
    assert len({(job.noise.rollout, job.noise.mirrored) for job in jobs}) == 6
    guided = cell_jobs(state(), GUIDED, 6, coupling="antithetic")
    assert [job.noise for job in guided] == [job.noise for job in jobs]
    one, other = (cell_jobs(state(), arm, 1)[0].noise for arm in (BASE, GUIDED))
    assert one.uniforms(0, 4).tolist() != other.uniforms(0, 4).tolist()


@pytest.mark.parametrize("phase", ["base", "guided"])
def test_a_truncated_committor_is_one_step_and_an_argmax_fill(phase: str) -> None:
    """Exactly: sum over X' of K(X' | x) * S(argmax fill of X' under the phase's distributions)."""
    toy = ExactToy(TABLES, RULES, one_a)
    kernel = toy.kernel(STEP, "guided" if phase == "guided" else "base")[toy.canvas.number(CANVAS)]
    conditional, hidden = TABLES.branch(conditional=True), TABLES.branch(conditional=False)
    logits = conditional + RULES.scale * (conditional - hidden) if phase == "guided" else conditional
    digits = toy.canvas.digits
    filled = torch.where(digits == toy.canvas.alphabet, logits.argmax(-1), digits)
    met = torch.tensor([one_a(tuple(text)) for text in filled.tolist()], dtype=torch.float64)
    expected = float(kernel @ met)
    arm = GUIDED if phase == "guided" else BASE
    estimate, outcomes = measured((arm,), COUNT, fill_after=1)
    low, high = wilson(estimate.cells[arm.name].successes, COUNT, CONFIDENCE)
    assert low <= expected <= high
    assert {outcome.ledger.total for outcome in outcomes} == {4 if phase == "guided" else 2}
    assert not any(TABLES.mask_id in outcome.tokens for outcome in outcomes)


def test_a_truncation_beyond_the_end_is_the_whole_rollout() -> None:
    _, whole = measured((BASE,), 20)
    _, cut = measured((BASE,), 20, fill_after=3)
    assert [outcome.tokens for outcome in cut] == [outcome.tokens for outcome in whole]


def test_later_rollouts_continue_the_cell() -> None:
    """A cell of 6 is a cell of 4 and rollouts 4 and 5 of it: censuses grow."""
    assert cell_jobs(state(), BASE, 2, first=4) == cell_jobs(state(), BASE, 6)[4:]
    with pytest.raises(ValueError, match="at least one rollout"):
        cell_jobs(state(), BASE, 0)


def test_graded_cells_estimate_the_exact_expectations() -> None:
    """The graded committor is the backward recursion of the score in place of the indicator; V is its difference."""
    toy = ExactToy(TABLES, RULES, one_a)
    texts = [toy.canvas.tokens(number) for number in range(toy.canvas.states)]
    toy.success = torch.tensor([text.count(0) / len(text) for text in texts], dtype=torch.float64)
    at = toy.canvas.number(CANVAS)
    base, guided = (float(toy.committors(phase)[STEP][at]) for phase in PHASES)
    estimate, _ = measured((BASE, GUIDED), COUNT)
    for cell, exact_score in ((estimate.base, base), (estimate.guided, guided)):
        interval = mean_interval(cell.scores, CONFIDENCE)
        assert interval.low <= exact_score <= interval.high
    value = estimate.graded_value(confidence=CONFIDENCE)
    assert value.low <= guided - base <= value.high
    assert not value.low <= base - guided <= value.high


def test_graded_scores_and_rows() -> None:
    estimate, outcomes = measured((BASE, GUIDED), 50)
    assert estimate.guided.mean_score == pytest.approx(np.mean([judge(o.content).score for o in outcomes[50:]]))
    graded = estimate.graded_value()
    assert graded.low <= graded.value <= graded.high
    assert graded.value == pytest.approx(estimate.guided.mean_score - estimate.base.mean_score)
    assert estimate.rows == sum(outcome.ledger.total for outcome in outcomes)
    assert schedule(RULES, TABLES.canvas, STEP, 1).quotas[3] == 1
