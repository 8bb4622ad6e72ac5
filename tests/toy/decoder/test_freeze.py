"""The freeze estimator and Definition 1 against enumeration: rates along the recorded run, a*, fates, switch curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from decoding.gates.builtin import NeverGate
from gate_models.committor.committor import BASE, GUIDED, Committor, cell_jobs, collect
from gate_models.committor.fates import handoff_fate, persistent_point
from gate_models.committor.horizon import (
    FreezePoint,
    FreezeSweep,
    ensemble_horizon,
    freeze_states,
    grid_points,
    measure_horizon,
    record_job,
    switch_jobs,
)
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Phase, Rules, TieError
from gate_models.offline.toy.model import ToyTables, random_tables
from tests.toy.decoder.decoder_runs import Verdict, engine_of, finish, job_of, path_of, wilson

RULES = Rules(4, scale=2.0)
GRID = grid_points(4)
COUNT = 80
CONFIDENCE = 0.9999
Success = Callable[[tuple[int, ...]], bool]
PHASES: tuple[Phase, ...] = ("base", "guided")
PREDICATES: dict[str, Success] = {
    "some a": lambda text: 0 in text,
    "two a": lambda text: text.count(0) >= 2,
    "starts with a": lambda text: text[0] == 0,
    "no a": lambda text: 0 not in text,
    "a next to b": lambda text: (0, 1) in set(pairwise(text)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded run whose exact rates are far from every threshold."""

    tables: ToyTables
    success: Success
    seed: int
    base: NDArray[np.float64]
    guided: NDArray[np.float64]


def far_from_thresholds(base: NDArray[np.float64], guided: NDArray[np.float64]) -> bool:
    """No rate within 0.12 of q0 = 0.9 and no gap within 0.14 of +-0.1, but for rates that are nearly certain."""
    gap = guided - base
    certain = (np.minimum(base, guided) > 0.995) | (np.maximum(base, guided) < 0.005)
    return bool(np.all(certain | ((abs(base - 0.9) > 0.12) & (abs(gap - 0.1) > 0.14))) and abs(gap.mean() + 0.1) > 0.1)


def committors(toy: ExactToy, success: Success) -> dict[Phase, list[torch.Tensor]]:
    """q0 and qg for another predicate on the kernels of `toy`."""
    texts = [toy.canvas.tokens(number) for number in range(toy.canvas.states)]
    met = [None not in text and success(tuple(token or 0 for token in text)) for text in texts]
    by_phase: dict[Phase, list[torch.Tensor]] = {}
    for phase in PHASES:
        q = [torch.tensor(met, dtype=torch.float64)]
        for step in reversed(range(toy.steps)):
            q.insert(0, toy.kernel(step, phase) @ q[0])
        by_phase[phase] = q
    return by_phase


def cases() -> dict[str, Case]:
    """One case for each handoff fate that random tables show."""
    by_fate: dict[str, Case] = {}
    for number in range(60):
        tables = random_tables(100 + number, length=4, spread=1.5)
        try:
            toy = ExactToy(tables, RULES, PREDICATES["some a"])
            by_predicate = {name: committors(toy, success) for name, success in PREDICATES.items()}
        except TieError:
            continue
        for seed in range(4):
            engine = engine_of(tables)
            (outcome,) = finish(engine, [engine.submit(record_job(job_of(tables, RULES, None, seed=seed), "toy"))])
            path = path_of(outcome, toy.canvas, tables.mask_id, 4)
            for name, exact in by_predicate.items():
                base, guided = (
                    np.array([min(1.0, float(exact[phase][point.step][path[point.step]])) for point in GRID])
                    for phase in PHASES
                )
                fate = handoff_fate(base, guided)
                if fate not in by_fate and far_from_thresholds(base, guided):
                    by_fate[fate] = Case(tables, PREDICATES[name], seed, base, guided)
        if len(by_fate) >= 4:
            break
    return by_fate


@pytest.fixture(scope="module")
def by_fate() -> dict[str, Case]:
    return cases()


def sweep_of(case: Case) -> FreezeSweep:
    """The estimator, as a server runs it: record, freeze, submit, collect."""
    engine = engine_of(case.tables)
    job = job_of(case.tables, RULES, None, seed=case.seed)
    (outcome,) = finish(engine, [engine.submit(record_job(job, "toy"))])
    points = []
    for frozen in freeze_states(outcome, "toy", case.tables.mask_id, GRID):
        cells = {}
        for arm in (BASE, GUIDED):
            outcomes = finish(engine, engine.submit_all(cell_jobs(frozen.state, arm, COUNT)))
            cells[arm.name] = collect(
                arm, outcomes, lambda text: Verdict(case.success(text), float(case.success(text)))
            )
        points.append(FreezePoint(frozen.point, frozen.committed_fraction, Committor(cells)))
    return FreezeSweep(4, tuple(points))


@pytest.mark.slow
def test_fates_and_horizons_equal_the_enumerated_ones(by_fate: dict[str, Case]) -> None:
    """Every cell holds the exact committor of its own recorded state; a* and fate are those of the exact rates."""
    assert len(by_fate) >= 4
    for fate, case in by_fate.items():
        sweep = sweep_of(case)
        for index, point in enumerate(sweep.points):
            for arm, exact in (("base", case.base), ("guided", case.guided)):
                low, high = wilson(point.committor.cells[arm].successes, COUNT, CONFIDENCE)
                assert low <= exact[index] <= high
        assert sweep.handoff_fate == fate
        index = int(persistent_point(case.base, case.guided))
        assert sweep.censored == (index == len(GRID))
        assert sweep.a_star == (1.0 if index == len(GRID) else GRID[index].step / 4)


def test_measuring_waits_for_the_engines_own_thread(by_fate: dict[str, Case]) -> None:
    """`measure_horizon` is the same estimator: same run, same cells."""
    fate, case = next(iter(by_fate.items()))
    job = job_of(case.tables, RULES, None, seed=case.seed)
    engine = engine_of(case.tables)
    with engine:
        outcome, sweep = measure_horizon(
            engine, job, lambda text: Verdict(case.success(text), 0.0), 6, label="toy", timeout=600
        )
    assert isinstance(outcome.job.gate, NeverGate)
    assert [point.point for point in sweep.points] == list(GRID)
    assert [point.committed_fraction for point in sweep.points] == [0.0, 0.25, 0.5]
    assert handoff_fate(case.base, case.guided) == fate
    assert sweep.rows == 6 * sum((2 + 1) * (4 - point.step) for point in GRID)


@pytest.mark.parametrize("tolerance", [0.01, 0.03, 0.1, 0.3])
def test_the_ensemble_horizon_is_definition_1(tolerance: float) -> None:
    """On the exact switch curve, at every step, for several tables and any epsilon."""
    for seed in range(6):
        toy = ExactToy(random_tables(seed, spread=1.2), Rules(3, scale=1.5), PREDICATES["some a"])
        curve = toy.switch_curve().numpy()
        horizon = ensemble_horizon(range(3), curve[:3], float(curve[3]), 3, tolerance)
        exact = toy.horizon(tolerance)
        assert (horizon.step, horizon.censored) == (exact.step, exact.censored)


def test_switch_runs_estimate_the_switch_curve() -> None:
    """Fresh prefixes, Eq. 5: S(t) at every t by runs that hand off there."""
    tables, rules = random_tables(7, spread=1.0), Rules(3, scale=2.0)
    toy = ExactToy(tables, rules, PREDICATES["two a"])
    engine = engine_of(tables)
    for step, exact in enumerate(toy.switch_curve().tolist()):
        jobs = switch_jobs(job_of(tables, rules, None), step, 150, label="toy")
        outcomes = finish(engine, engine.submit_all(jobs))
        low, high = wilson(sum(PREDICATES["two a"](outcome.tokens) for outcome in outcomes), 150, CONFIDENCE)
        assert low <= exact <= high
        assert {outcome.ledger.total for outcome in outcomes} == {3 + step}


def test_grid_points_merge_and_stay_before_the_end() -> None:
    points = grid_points(16)
    assert [point.step for point in points] == [1, 2, 4, 5, 7, 10]
    assert points[1].fractions == (0.10, 0.15)
    assert [point.step for point in grid_points(64)] == [3, 6, 10, 14, 19, 29, 38]
    with pytest.raises(ValueError, match="before the last step"):
        grid_points(4, (0.9,))
    with pytest.raises(ValueError, match="empty"):
        grid_points(4, ())


def test_a_base_job_has_no_horizon() -> None:
    with pytest.raises(ValueError, match="guidance_scale > 0"):
        record_job(job_of(random_tables(0), Rules(3), 0), "toy")
