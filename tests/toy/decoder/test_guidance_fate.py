"""The guidance fate of a weight sweep against enumeration: fresh runs at each weight, judged, give the exact fate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest

from gate_models.committor.fates import guidance_fate
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules, TieError
from gate_models.offline.toy.model import ToyTables, random_tables
from tests.toy.decoder.decoder_runs import engine_of, finish, job_of, wilson
from tests.toy.decoder.test_freeze import PREDICATES, Success, committors

WEIGHTS = (0.0, 1.0, 2.0)
FATES = ("needs-CFG", "born-in", "harmful")
COUNT = 200
CONFIDENCE = 0.9999
LARGE = 10**6


def exact_rates(tables: ToyTables) -> Mapping[str, dict[float, float]]:
    """Success of a whole run by predicate and weight."""
    rates: dict[str, dict[float, float]] = {name: {} for name in PREDICATES}
    for weight in WEIGHTS:
        toy = ExactToy(tables, Rules(4, scale=max(weight, 1.0)), PREDICATES["some a"])
        for name, success in PREDICATES.items():
            phase = committors(toy, success)["guided" if weight else "base"]
            rates[name][weight] = float(phase[0][toy.canvas.empty])
    return rates


def fate_of(rates: Mapping[float, float]) -> str:
    return guidance_fate({weight: (round(rate * LARGE), LARGE) for weight, rate in rates.items()})


def certain(rates: Mapping[float, float]) -> bool:
    """Whether the fate stays what it is while every rate moves by three standard errors of `COUNT` runs."""
    moves = [3 * math.sqrt(rate * (1 - rate) / COUNT) for rate in rates.values()]
    corners = [
        {
            weight: min(1.0, max(0.0, rate + sign * move))
            for (weight, rate), sign, move in zip(rates.items(), signs, moves, strict=True)
        }
        for signs in itertools.product((-1, 1), repeat=len(rates))
    ]
    return len({fate_of(corner) for corner in corners}) == 1


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[ToyTables, Success, dict[float, float]]]:
    by_fate: dict[str, tuple[ToyTables, Success, dict[float, float]]] = {}
    for number in range(30):
        tables = random_tables(300 + number, length=4, spread=1.0)
        try:
            by_predicate = exact_rates(tables)
        except TieError:
            continue
        for name, rates in by_predicate.items():
            fate = fate_of(rates)
            if fate not in by_fate and certain(rates):
                by_fate[fate] = tables, PREDICATES[name], rates
        if by_fate.keys() >= set(FATES):
            break
    return by_fate


@pytest.mark.parametrize("fate", FATES)
def test_a_weight_sweep_has_the_exact_fate(
    fate: str, cases: dict[str, tuple[ToyTables, Success, dict[float, float]]]
) -> None:
    tables, success, rates = cases[fate]
    engine = engine_of(tables)
    counts = {}
    for weight, exact in rates.items():
        rules, handoff = (Rules(4, scale=weight), None) if weight else (Rules(4), 0)
        jobs = [job_of(tables, rules, handoff, arm=f"w{weight}", rollout=index) for index in range(COUNT)]
        hits = sum(success(outcome.tokens) for outcome in finish(engine, engine.submit_all(jobs)))
        low, high = wilson(hits, COUNT, CONFIDENCE)
        assert low <= exact <= high
        counts[weight] = hits, COUNT
    assert guidance_fate(counts) == fate
