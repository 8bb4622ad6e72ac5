"""The decoder's own step, exhaustively: every state, every joint draw, every order gives the exact law's next state.

Each position's uniform is scripted to lie in the sampled token's interval of the exact cumulative distribution, at both
of its ends, so the interval's length, which is the token's probability, is checked too. With the weights summed in
`test_kernel_is_a_plain_enumeration`, the decoder's transition kernel is proven, not sampled.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from decoding.engine.runner import Runner
from decoding.request.canvas import CanvasState
from decoding.sampling import commit_order, noise
from decoding.sampling.stability import NO_TAIL, Seen, TailState, leaders_of, remembered
from decoding.sampling.tail_rule import TAIL_RULES
from gate_models.offline.toy.exact_committor import ExactToy
from gate_models.offline.toy.exact_step import (
    Distributions,
    Phase,
    Rules,
    StepLaw,
    TieError,
    distributions,
    schedule,
)
from gate_models.offline.toy.model import ToyModel, ToyTables, attending, random_tables
from tests.toy.decoder.decoder_runs import POSITION, job_of, steady_tables

SMALL = random_tables(1)
ENDING = random_tables(2, end_is_token=True)
LONG = random_tables(3, length=4)
EDGE = 1e-9

CASES: dict[str, tuple[ToyTables, Rules, int]] = {
    "probability": (SMALL, Rules(3), 0),
    "margin": (SMALL, Rules(3, confidence="margin"), 1),
    "neg_entropy": (SMALL, Rules(3, confidence="neg_entropy"), 0),
    "random": (SMALL, Rules(3, order="random"), 0),
    "random_confidence": (SMALL, Rules(2, confidence="random"), 0),
    "position": (SMALL, Rules(3, confidence="position"), 0),
    "guidance_boost": (SMALL, Rules(3, order="guidance_boost"), 0),
    "boost_confidence": (SMALL, Rules(2, order="boost_confidence"), 0),
    "conditional": (SMALL, Rules(2, order="conditional"), 0),
    "plausibility": (SMALL, Rules(2, confidence="neg_entropy", plausibility=0.2), 0),
    "readable": (SMALL, Rules(2, order="conditional", plausibility=0.5, temperature=0.5), 0),
    "negative_boosts": (SMALL, Rules(2, scale=0.25, order="guidance_boost"), 0),
    "strong_guidance": (SMALL, Rules(3, scale=4.0), 0),
    "hot": (SMALL, Rules(2, temperature=1.5), 0),
    "cold": (SMALL, Rules(2, temperature=0.5), 0),
    "greedy": (SMALL, Rules(2, temperature=0.0), 0),
    "nucleus": (SMALL, Rules(3, top_p=0.75), 0),
    "hot_nucleus": (SMALL, Rules(3, top_p=0.5, temperature=1.5), 0),
    "few_steps": (SMALL, Rules(2), 0),
    "one_step": (SMALL, Rules(1), 0),
    "many_steps": (SMALL, Rules(7), 2),
    "last_step": (SMALL, Rules(3), 2),
    "wide": (SMALL, Rules(3, guided_width=2, tail_width=2), 0),
    "wide_and_late": (SMALL, Rules(2, guided_width=2, tail_width=2), 1),
    "adaptive": (SMALL, Rules(3, tail_width=3, tail_threshold=0.5), 0),
    "adaptive_margin": (SMALL, Rules(3, confidence="margin", tail_width=3, tail_threshold=0.4), 0),
    "spaced": (LONG, Rules(4, tail_width=4, tail_rule="spaced"), 0),
    "best_of_run": (LONG, Rules(4, tail_width=4, tail_rule="best_of_run"), 0),
    "entropy_bound": (LONG, Rules(4, tail_width=4, tail_rule="entropy_bound"), 0),
    "factor": (LONG, Rules(4, tail_width=3, tail_rule="factor"), 0),
    "stable": (LONG, Rules(4, tail_width=3, tail_rule="stable"), 0),
    "conflict": (attending(LONG, 2), Rules(4, tail_width=4, tail_rule="conflict"), 0),
    "conflict_ends": (attending(ENDING, 3), Rules(3, tail_width=3, tail_rule="conflict"), 0),
    "growing": (LONG, Rules(4, tail_width=2, growing=True), 0),
    "growing_spaced": (LONG, Rules(4, tail_width=3, tail_rule="spaced", growing=True), 0),
    "spaced_ends": (ENDING, Rules(3, tail_width=3, tail_rule="spaced"), 0),
    "best_of_run_adaptive": (SMALL, Rules(3, tail_width=3, tail_rule="best_of_run", tail_threshold=0.5), 0),
    "end": (ENDING, Rules(2), 0),
    "suppressed_end": (ENDING, Rules(2, suppress_end=True), 0),
    "deferred_end": (ENDING, Rules(2, defer_end=True), 0),
    "blocks": (LONG, Rules(4, block_length=2), 1),
    "second_block": (LONG, Rules(8, block_length=2), 5),
}


@dataclass(frozen=True)
class ScriptedNoise:
    """Stands in for a `NoiseKey`: says which uniforms the step draws."""

    sample: NDArray[np.float64]
    rank: NDArray[np.float64]
    round: int = 0

    def with_round(self, number: int) -> ScriptedNoise:
        return self

    def uniforms(self, step: int, length: int, stream: int = noise.SAMPLE) -> NDArray[np.float64]:
        return self.sample if stream == noise.SAMPLE else self.rank


@pytest.fixture(autouse=True)
def _theory_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commit_order.CONFIDENCE_KINDS, "position", POSITION)


def intervals(law: StepLaw, laws: Distributions) -> tuple[torch.Tensor, torch.Tensor]:
    """[D, L] each: ends of the uniforms that draw each pair's tokens."""
    upper = laws.drawn.cumsum(-1)
    return law.at_tokens(upper - laws.drawn), law.at_tokens(upper)


def test_every_tail_rule_has_a_case() -> None:
    assert {rules.tail_rule for _, rules, _ in CASES.values()} == set(TAIL_RULES)


@pytest.mark.parametrize("phase", ["guided", "base"])
@pytest.mark.parametrize("case", CASES)
def test_every_draw_leads_where_the_exact_law_says(case: str, phase: Phase) -> None:
    """Contract 1 of the decoder (tilt, suppress, sample, rank, commit) against Section 3.1's kernel, no statistics."""
    tables, rules, step = CASES[case]
    law = StepLaw(tables, rules)
    width, growing = (rules.guided_width, False) if phase == "guided" else (rules.tail_width, rules.growing)
    plan = schedule(rules, tables.canvas, step, width, growing=growing)
    laws = distributions(tables, rules, torch.tensor(rules.scale) if phase == "guided" else None)
    pairs = torch.nonzero((law.draw_probability(laws) > 0) & law.masked.any(-1)).flatten().tolist()
    low, high = intervals(law, laws)
    edge = (0.25 * (high - low)).clamp(max=EDGE)
    uniforms = [low + edge, 0.5 * (low + high), high - edge]
    permutations = list(itertools.permutations(range(tables.canvas.length)))
    states, expected = [], []
    for index, (_, image) in enumerate(law.images(plan, phase, laws)):
        rank = np.array(permutations[index]) / tables.canvas.length
        for pair in pairs:
            sample = uniforms[(pair + index) % 3][pair].numpy()
            states.append(scripted(tables, rules, phase, int(law.state[pair]), step, ScriptedNoise(sample, rank)))
            expected.append(int(image[pair]))
    runner = Runner(ToyModel(tables), tile=2048, chunk=8192)
    for state, result in zip(states, runner.run(states), strict=True):
        state.apply(result.candidates, result.positions, result.attention)
    mask = tables.mask_id
    reached = [tables.canvas.number(None if t == mask else int(t) for t in state.tokens) for state in states]
    assert reached == expected


def scripted(
    tables: ToyTables,
    rules: Rules,
    phase: Phase,
    state: int,
    step: int,
    noise: ScriptedNoise,
    tail: TailState = NO_TAIL,
) -> CanvasState:
    """The real request, standing at `state` before `step`."""
    start = tuple(tables.mask_id if token is None else token for token in tables.canvas.tokens(state))
    job = job_of(tables, rules, None if phase == "guided" else 0)
    base = phase == "base"
    job = replace(job, start=start, start_step=step, start_tail=tail, noise=noise, handed_off=base)  # type: ignore[arg-type]
    return CanvasState(job, tables.mask_id, (tables.end_id,))


def test_a_tail_that_remembers_leads_where_the_exact_law_says() -> None:
    """`stable` after two steps of the tail, whose memory is made by the decoder from the states that it stood at."""
    tables, rules = steady_tables(1), Rules(5, tail_width=3, tail_rule="stable")
    exact, mask = ExactToy(tables, rules, lambda text: True), tables.mask_id
    histories = sorted({path[:3] for path in exact.paths(0)})[::7]
    runner, plan = Runner(ToyModel(tables), tile=2048, chunk=8192), schedule(rules, tables.canvas, 2, 3)
    quiet = ScriptedNoise(np.full(5, 0.5), np.zeros(5))
    places = sorted({state for history in histories for state in history})
    looks = runner.run([scripted(tables, rules, "base", state, 0, quiet) for state in places])
    seen_at = dict(zip(places, looks, strict=True))
    wide = 0
    for *before, now in histories:
        memory: tuple[Seen, ...] = ()
        for state in before:
            look = seen_at[state]
            pairs = zip(look.candidates.leader_ids.tolist(), look.candidates.leader_probability.tolist(), strict=True)
            memory = remembered(memory, look.positions.tolist(), [leaders_of(*pair) for pair in pairs])
        law = exact.law.at(now)
        low, high = intervals(law, law.base)
        states = [
            scripted(tables, rules, "base", now, 2, ScriptedNoise(middle.numpy(), np.zeros(5)), TailState(memory))
            for middle in 0.5 * (low + high)
        ]
        for state, result in zip(states, runner.run(states), strict=True):
            state.apply(result.candidates, result.positions, result.attention)
        reached = [tables.canvas.number(None if t == mask else int(t) for t in state.tokens) for state in states]
        ((_, image),) = law.images(plan, "base", law.base, history=before)
        assert reached == image.tolist()
        wide += sum(int(exact.law.masks[now]) - int(exact.law.masks[state]) > 1 for state in reached)
    assert wide > 20


@pytest.mark.parametrize("rules", [Rules(3), Rules(2, order="guidance_boost"), Rules(2, temperature=0.5)], ids=str)
@pytest.mark.parametrize("phase", ["guided", "base"])
def test_kernel_is_a_plain_enumeration(rules: Rules, phase: Phase) -> None:
    """K(x'|x) row by row from scalar arithmetic: exp, products and sorting in plain Python."""
    law = StepLaw(SMALL, rules)
    kernel = law.kernel(schedule(rules, SMALL.canvas, 0, 1), phase)
    torch.testing.assert_close(kernel.sum(-1), torch.ones(SMALL.canvas.states, dtype=torch.float64), rtol=0, atol=1e-13)
    for state in range(SMALL.canvas.states):
        expected = plain_row(SMALL, rules, state, guided=phase == "guided")
        row = {number: float(kernel[state, number]) for number in kernel[state].nonzero().flatten().tolist()}
        assert row == pytest.approx(expected, abs=1e-13)


def plain_row(tables: ToyTables, rules: Rules, state: int, *, guided: bool) -> dict[int, float]:
    """One row of the kernel at step 0."""
    canvas = tables.canvas
    tokens = canvas.tokens(state)
    masked = [i for i, token in enumerate(tokens) if token is None]
    quota = -(-len(masked) // rules.steps)
    weight = rules.scale if guided else 0.0
    drawn, confidence, plain = {}, {}, {}
    for i in masked:
        c, u = (t[state, i, : canvas.alphabet].tolist() for t in (tables.conditional, tables.unconditional))
        tilted = [a + weight * (a - b) for a, b in zip(c, u, strict=True)]
        drawn[i], confidence[i], plain[i] = softmax(tilted, rules.temperature), softmax(tilted, 1.0), softmax(c, 1.0)
    row: dict[int, float] = {}
    for draw in itertools.product(range(canvas.alphabet), repeat=len(masked)):
        chosen = dict(zip(masked, draw, strict=True))
        boost = guided and rules.order == "guidance_boost"
        score = {i: confidence[i][v] - (plain[i][v] if boost else 0.0) for i, v in chosen.items()}
        first = sorted(masked, key=lambda i: (-score[i], i))[:quota]
        after = canvas.number(chosen[i] if i in first else token for i, token in enumerate(tokens))
        row[after] = row.get(after, 0.0) + math.prod(drawn[i][v] for i, v in chosen.items())
    return row


def softmax(logits: list[float], temperature: float) -> list[float]:
    powers = [math.exp(logit / temperature) for logit in logits]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("rules", [Rules(3), Rules(3, temperature=0.5), Rules(3, suppress_end=True)], ids=str)
def test_recorded_statistics_are_those_of_the_exact_distributions(rules: Rules) -> None:
    """Probability, margin, entropy, boost, KL and total variation at every state and position, to 1e-12."""
    laws = distributions(ENDING, rules, torch.tensor(rules.scale))
    quiet = ScriptedNoise(np.full(3, 0.4), np.zeros(3))
    numbers = [n for n in range(ENDING.canvas.states) if None in ENDING.canvas.tokens(n)]
    states = [scripted(ENDING, rules, "guided", number, 0, quiet) for number in numbers]
    for number, result in zip(numbers, Runner(ToyModel(ENDING), chunk=4096).run(states), strict=True):
        at, got = torch.from_numpy(result.positions), result.candidates
        guided, plain = laws.plain[number, at], laws.conditional[number, at]
        of_token = [p.gather(-1, got.token[:, None]).squeeze(-1) for p in (guided, plain)]
        top = guided.topk(2, -1).values
        expected = {
            "probability": of_token[0],
            "boost": of_token[0] - of_token[1],
            "margin": top[:, 0] - top[:, 1],
            "entropy": -torch.xlogy(guided, guided).sum(-1),
            "kl": (torch.xlogy(guided, guided) - torch.xlogy(guided, plain)).nan_to_num().sum(-1),
            "total_variation": 0.5 * (guided - plain).abs().sum(-1),
        }
        for name, values in expected.items():
            torch.testing.assert_close(getattr(got, name), values, rtol=0, atol=1e-12, msg=name)


def test_tied_scores_are_refused() -> None:
    """A tie would rest the exact law on rounding; every boost is zero at w = 0."""
    law = StepLaw(SMALL, Rules(3, order="guidance_boost"))
    with pytest.raises(TieError):
        law.kernel(schedule(law.rules, SMALL.canvas, 0, 1), "guided", scale=0.0)
