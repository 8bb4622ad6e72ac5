"""Whole runs of the real engine against the exact law of the toy (Section 3): paths, outcomes, rows.

Counts of complete trajectories X_0..X_T are compared by Pearson's chi-square test at fixed seeds. Each law is rejected
only below p = 1e-4, so one seed in ten thousand would fail by chance; `test_the_counts_tell_wrong_laws_apart` shows
that the same sample size rejects neighbouring laws at 1e-6.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from decoding.engine.engine import Engine
from decoding.gates.builtin import DrainedGate
from decoding.sampling import commit_order
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import Rules, distributions
from gate_models.offline.toy.model import ToyTables, attending, random_tables
from tests.toy.decoder.decoder_runs import (
    POSITION,
    count_paths,
    decode,
    engine_of,
    finish,
    job_of,
    p_value,
    steady_tables,
)

SMALL = random_tables(9, spread=0.6)
ENDING = random_tables(2, spread=0.6, end_is_token=True)
LONG = random_tables(3, length=4, spread=0.6)
LEVEL = 1e-4
RUNS = 500
LONGER = random_tables(5, alphabet=2, length=5, spread=0.6)
STEADY = steady_tables(1)

RUNS_OF: dict[str, tuple[ToyTables, Rules, int | None]] = {
    "base": (SMALL, Rules(3), 0),
    "guided": (SMALL, Rules(3), None),
    "handoff 1": (SMALL, Rules(3), 1),
    "handoff 2": (SMALL, Rules(3), 2),
    "handoff 3": (SMALL, Rules(3), 3),
    "boost, guided": (SMALL, Rules(3, order="guidance_boost"), None),
    "boost, handoff 1": (SMALL, Rules(3, order="guidance_boost"), 1),
    "conditional, guided": (SMALL, Rules(3, order="conditional"), None),
    "readable, handoff 2": (SMALL, Rules(3, order="conditional", plausibility=0.5, temperature=0.5), 2),
    "random, handoff 1": (SMALL, Rules(3, order="random"), 1),
    "position, handoff 2": (SMALL, Rules(3, confidence="position"), 2),
    "margin, handoff 2": (SMALL, Rules(3, confidence="margin"), 2),
    "neg_entropy, guided": (SMALL, Rules(3, confidence="neg_entropy"), None),
    "hot, handoff 1": (SMALL, Rules(3, temperature=1.5), 1),
    "cold, guided": (SMALL, Rules(3, temperature=0.5), None),
    "greedy, handoff 1": (SMALL, Rules(3, temperature=0.0), 1),
    "nucleus, handoff 2": (SMALL, Rules(3, top_p=0.75), 2),
    "T > L, handoff 2": (SMALL, Rules(5), 2),
    "T > L, handoff 4": (SMALL, Rules(5), 4),
    "T < L, handoff 1": (SMALL, Rules(2), 1),
    "T = 1, guided": (SMALL, Rules(1), None),
    "end": (ENDING, Rules(3), 1),
    "suppressed end": (ENDING, Rules(3, suppress_end=True), 1),
    "deferred end": (ENDING, Rules(3, defer_end=True), 1),
    "K = 2, handoff 0": (LONG, Rules(4, tail_width=2), 0),
    "K = 3, handoff 1": (LONG, Rules(4, tail_width=3), 1),
    "K = 2, handoff 2": (LONG, Rules(4, tail_width=2), 2),
    "K = 4, handoff 1, T > L": (LONG, Rules(6, tail_width=4), 1),
    "adaptive, handoff 1": (LONG, Rules(4, tail_width=3, tail_threshold=0.5), 1),
    "spaced, handoff 1": (LONG, Rules(4, tail_width=3, tail_rule="spaced"), 1),
    "best of run, handoff 1": (LONG, Rules(4, tail_width=3, tail_rule="best_of_run"), 1),
    "entropy bound, handoff 0": (LONG, Rules(4, tail_width=3, tail_rule="entropy_bound"), 0),
    "stable, handoff 0": (STEADY, Rules(5, tail_width=3, tail_rule="stable"), 0),
    "stable, handoff 1": (STEADY, Rules(5, tail_width=3, tail_rule="stable"), 1),
    "conflict, handoff 0": (attending(LONG, 1), Rules(4, tail_width=4, tail_rule="conflict"), 0),
    "conflict, handoff 1": (attending(LONG, 1), Rules(4, tail_width=4, tail_rule="conflict"), 1),
    "growing, handoff 0": (LONGER, Rules(5, tail_width=2, growing=True), 0),
    "growing, handoff 1": (LONG, Rules(4, tail_width=2, growing=True), 1),
    "growing and stable, handoff 0": (STEADY, Rules(5, tail_width=2, tail_rule="stable", growing=True), 0),
    "guided width 2": (LONG, Rules(4, guided_width=2), None),
    "guided width 2, handoff 1": (LONG, Rules(4, guided_width=2), 1),
    "blocks, handoff 3": (LONG, Rules(4, block_length=2), 3),
}


@pytest.fixture(autouse=True)
def _theory_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commit_order.CONFIDENCE_KINDS, "position", POSITION)


def one_a(text: tuple[int, ...]) -> bool:
    return text.count(0) == 1


def exact_of(tables: ToyTables, rules: Rules) -> ExactToy:
    return ExactToy(tables, rules, one_a)


@pytest.mark.parametrize("name", RUNS_OF)
def test_trajectories_follow_the_exact_law(name: str) -> None:
    """Positions, tokens and order of every step, and the rows that the ledger was charged."""
    tables, rules, handoff = RUNS_OF[name]
    outcomes = decode(tables, rules, handoff, RUNS)
    exact = exact_of(tables, rules)
    until = rules.steps if handoff is None else handoff
    assert p_value(count_paths(outcomes, tables, rules.steps), exact.paths(until)) > LEVEL
    if not rules.paced_by_tokens:
        assert {outcome.ledger.total for outcome in outcomes} == {exact.rows(until)}
        assert outcomes[0].job.planned_rows(until) == exact.rows(until)


def test_invariant_mode_follows_the_same_law() -> None:
    """Fixed tiles change no distribution, and at equal noise no token in float64."""
    rules = Rules(3)
    fixed, plain = decode(SMALL, rules, 1, 400, invariant=True), decode(SMALL, rules, 1, 400)
    assert [o.tokens for o in fixed] == [o.tokens for o in plain]
    assert p_value(count_paths(fixed, SMALL, 3), exact_of(SMALL, rules).paths(1)) > LEVEL


@pytest.mark.parametrize(
    ("wrong", "handoff"),
    [
        (Rules(3), 1),
        (Rules(3, scale=0.75), 2),
        (Rules(3, order="random"), 2),
        (Rules(3, order="guidance_boost"), 2),
        (Rules(3, confidence="margin"), 2),
        (Rules(3, temperature=1.5), 2),
        (Rules(3, guided_width=2), 2),
    ],
    ids=str,
)
def test_the_counts_tell_wrong_laws_apart(wrong: Rules, handoff: int) -> None:
    """The test above has power: a sample under other rules is rejected."""
    outcomes = decode(SMALL, wrong, handoff, RUNS)
    assert p_value(count_paths(outcomes, SMALL, 3), exact_of(SMALL, Rules(3)).paths(2)) < 1e-6


@pytest.mark.parametrize("tail_width", [1, 2, 4])
def test_success_frequencies_follow_the_switch_curve(tail_width: int) -> None:
    """S(t) of Section 3.3 at every handoff step and tail width, all cells of one engine, each within z = 4."""
    rules = Rules(4, order="guidance_boost", tail_width=tail_width)
    curve = ExactToy(LONG, rules, one_a).switch_curve()
    engine, count = engine_of(LONG), 400
    cells = [
        [job_of(LONG, rules, t if t < 4 else None, arm=f"t{t}", rollout=i) for i in range(count)] for t in range(5)
    ]
    outcomes = finish(engine, engine.submit_all([job for cell in cells for job in cell]))
    for t, expected in enumerate(curve.tolist()):
        hits = sum(one_a(outcome.tokens) for outcome in outcomes[t * count : (t + 1) * count])
        assert abs(hits / count - expected) < 4 * (expected * (1 - expected) / count) ** 0.5


def test_equal_seeds_do_not_couple_cells() -> None:
    """Arms draw independent noise: handoff at 1 and at 2 share a seed, and the joint law is the product of both."""
    rules, tables = Rules(3), SMALL
    engine = engine_of(tables)
    jobs = [job_of(tables, rules, h, seed=5, arm=f"h{h}", rollout=i) for h in (1, 2) for i in range(RUNS)]
    outcomes = finish(engine, engine.submit_all(jobs))
    number = tables.canvas.number
    halves = zip(outcomes[:RUNS], outcomes[RUNS:], strict=True)
    pairs: Counter[tuple[int, ...]] = Counter((number(a.tokens), number(b.tokens)) for a, b in halves)
    first, second = (exact_of(tables, rules).outcomes(h).tolist() for h in (1, 2))
    joint: dict[tuple[int, ...], float] = {
        (a, b): p * q for a, p in enumerate(first) if p for b, q in enumerate(second) if q
    }
    assert p_value(pairs, joint) > LEVEL


def test_drained_gate_follows_its_exact_law() -> None:
    """A causal gate: handoff once the total variation that a step left is small; the law of the paths is exact."""
    rules, threshold, tables = Rules(4), 0.25, random_tables(4, length=4, spread=0.6)
    exact = exact_of(tables, rules)
    engine: Engine = engine_of(tables)
    job = job_of(tables, rules, 1)
    gate = DrainedGate(threshold)
    jobs = [replace(job, gate=gate, noise=replace(job.noise, rollout=i)) for i in range(RUNS)]
    outcomes = finish(engine, engine.submit_all(jobs))
    stops = drained_stops(exact, threshold)
    law: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[tuple[int, ...], bool, float]] = [((exact.canvas.empty,), False, 1.0)]
    for step in range(rules.steps):
        following = []
        for path, base, mass in frontier:
            kernel = exact.kernel(step, "base" if base else "guided")
            for state in kernel[path[-1]].nonzero().flatten().tolist():
                fired = base or bool(stops[path[-1], state])
                following.append(((*path, state), fired, mass * float(kernel[path[-1], state])))
        frontier = following
    for path, _, mass in frontier:
        law[path] = law.get(path, 0.0) + mass
    assert p_value(count_paths(outcomes, tables, rules.steps), law) > LEVEL
    assert len({outcome.handoff_step for outcome in outcomes}) > 2


def drained_stops(exact: ExactToy, threshold: float) -> torch.Tensor:
    """[x, x'] bool: total variation at x, over the positions still masked in x', is below the threshold everywhere."""
    laws = distributions(exact.law.tables, exact.rules, torch.tensor(exact.rules.scale))
    variation = 0.5 * (laws.plain - laws.conditional).abs().sum(-1)
    masked = exact.canvas.digits == exact.canvas.alphabet
    worst = torch.where(masked[None], variation[:, None], 0.0).amax(-1)
    return (worst < threshold) & masked.any(-1)
