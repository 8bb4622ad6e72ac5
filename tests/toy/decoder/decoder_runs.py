"""Decode the toy with the real decoder, and compare counts with exact laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import stats

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult, Handle
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.gates.builtin import FractionGate, NeverGate
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.request.job import Job, Sampling
from decoding.sampling.commit_order import Order
from decoding.sampling.noise import NoiseKey
from gate_models.offline.toy.exact_step import Rules
from gate_models.offline.toy.model import PROMPT, ToyCanvas, ToyModel, ToyTables, random_tables

POSITION = Order("position", lambda candidates, _: torch.zeros_like(candidates.probability))
"""Left to right: all scores tie, and ties go to the smaller position."""


def steady_tables(seed: int, length: int = 5, spread: float = 0.08) -> ToyTables:
    """One of three letters likely at each position, in turn: predictions that a commit elsewhere moves little."""
    rough = random_tables(seed, length=length, spread=spread)
    likely = torch.zeros(length, rough.conditional.shape[-1], dtype=torch.float64)
    likely[torch.arange(length), torch.arange(length) % 3] = 1.8
    return replace(rough, conditional=rough.conditional + likely, unconditional=rough.unconditional + likely)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test's own predicate says of a text."""

    satisfied: bool
    score: float


def policy_of(rules: Rules, handoff: int | None) -> DecodingPolicy:
    """The decoder's policy for these rules; guidance ends before step `handoff` (None: never, 0: the base decoder)."""
    if handoff == 0:
        order = "random" if rules.order == "random" else "confidence"
        return DecodingPolicy(
            "base",
            guidance_scale=0.0,
            order=order,
            gate=GateSettings("never"),
            tail_width=rules.tail_width,
            tail_rule=rules.tail_rule,
            tail_schedule="growing" if rules.growing else "constant",
            tail_mend=rules.mend,
            tail_threshold=rules.tail_threshold,
        )
    if handoff is None:
        return DecodingPolicy(
            "full_cfg",
            guidance_scale=rules.scale,
            order=rules.order,
            plausibility=rules.plausibility,
            guided_width=rules.guided_width,
            gate=GateSettings("never"),
        )
    return DecodingPolicy(
        "handoff",
        guidance_scale=rules.scale,
        order=rules.order,
        plausibility=rules.plausibility,
        guided_width=rules.guided_width,
        gate=GateSettings("fraction", fraction=handoff / rules.steps),
        tail_width=rules.tail_width,
        tail_rule=rules.tail_rule,
        tail_schedule="growing" if rules.growing else "constant",
        tail_mend=rules.mend,
        tail_threshold=rules.tail_threshold,
    )


def job_of(
    tables: ToyTables, rules: Rules, handoff: int | None, *, seed: int = 0, arm: str = "", rollout: int = 0
) -> Job:
    """A job that decodes the toy from the empty canvas."""
    policy = policy_of(rules, handoff)
    gate = NeverGate() if policy.gate.fraction is None else FractionGate(policy.gate.fraction)
    return Job(
        prompt_ids=PROMPT,
        gen_length=tables.canvas.length,
        steps=rules.steps,
        policy=policy,
        noise=NoiseKey(seed, arm=arm, rollout=rollout),
        gate=gate,
        sampling=Sampling(
            temperature=rules.temperature,
            top_p=rules.top_p,
            confidence=rules.confidence,
            suppress_eos=rules.suppress_end,
            defer_eos=rules.defer_end,
        ),
        block_length=rules.block_length,
    )


def engine_of(tables: ToyTables, *, invariant: bool = False) -> Engine:
    """An engine that runs a thousand canvases at a time on the calling thread."""
    model = ToyModel(tables)
    return Engine(
        model,
        runner=Runner(model, invariant=invariant, tile=1024, chunk=4096),
        scheduler=Scheduler(max_rows=1024, max_queued_rows=10**7),
    )


def finish(engine: Engine, handles: Sequence[Handle]) -> list[DecodingResult]:
    """Step the engine until nothing is left; the outcomes of `handles`."""
    while engine.step():
        pass
    return [handle.result(0) for handle in handles]


def decode(
    tables: ToyTables, rules: Rules, handoff: int | None, count: int, *, seed: int = 0, invariant: bool = False
) -> list[DecodingResult]:
    """`count` independent canvases."""
    engine = engine_of(tables, invariant=invariant)
    jobs = [job_of(tables, rules, handoff, seed=seed, rollout=index) for index in range(count)]
    return finish(engine, engine.submit_all(jobs))


def path_of(outcome: DecodingResult, canvas: ToyCanvas, mask_id: int, steps: int) -> tuple[int, ...]:
    """State numbers X_0..X_T of a run, from its trace; a run that ends early stays where it is."""
    last = len(outcome.trace.steps)
    prefixes = [outcome.trace.prefix(min(t, last), mask_id) for t in range(steps + 1)]
    return tuple(canvas.number(None if i == mask_id else int(i) for i in prefix) for prefix in prefixes)


def count_paths(outcomes: Sequence[DecodingResult], tables: ToyTables, steps: int) -> Counter[tuple[int, ...]]:
    return Counter(path_of(outcome, tables.canvas, tables.mask_id, steps) for outcome in outcomes)


def p_value(counts: Mapping[tuple[int, ...], int], law: Mapping[tuple[int, ...], float]) -> float:
    """Pearson's chi-square test of counts against a law; cells that expect fewer than 5 are pooled.

    A count where the law has no mass gives 0: no sample of the law contains it.
    """
    total = sum(counts.values())
    if any(law.get(key, 0.0) == 0.0 for key in counts):
        return 0.0
    keys = sorted(law, key=lambda key: -law[key])
    expected = np.array([total * law[key] for key in keys])
    seen = np.array([counts.get(key, 0) for key in keys])
    large = expected >= 5.0
    cells = np.append(expected[large], expected[~large].sum())
    pooled = np.append(seen[large], seen[~large].sum())
    if cells[-1] < 5.0:  # a tail too thin for a cell of its own joins the smallest
        cells, pooled = np.append(cells[:-2], cells[-2:].sum()), np.append(pooled[:-2], pooled[-2:].sum())
    if len(cells) < 2:
        return 1.0
    return float(stats.chisquare(pooled, cells * (pooled.sum() / cells.sum())).pvalue)


def wilson(successes: int, count: int, confidence: float) -> tuple[float, float]:
    """Wilson interval of a proportion."""
    interval = stats.binomtest(successes, count).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)
