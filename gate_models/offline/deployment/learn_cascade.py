"""Learn the order in which preset `auto` tries policies, from evaluations: the attempt that pays most comes first.

A prompt is still unsolved with the product of the failure rates of what has been tried. The next attempt is the one
with the most expected successes among the unsolved per expected row (greedy, as for a stochastic set cover). Failure
rates are per prompt, shrunk towards the policy's mean by `PRIOR` imagined samples. A policy may come again: another
seed. An optional bound keeps out policies whose texts are less fluent than full CFG's by more than a factor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decoding.constraints import FAMILIES
from gate_models.offline.deployment.results import SampleEntry, SamplesByPolicy, truncated
from gate_models.policies.cascade import AttemptOrder, Cascades, read_cascades, write_cascades
from gate_models.policies.names import parse_policy

PRIOR: Final = 1.0
TRUNCATED: Final = (0, 2, 4)
"""Numbers of repair rounds whose policies are read off runs with more."""
REFERENCE: Final = "full_cfg"
PROVENANCE: Final = ("seed", "precision", "versions", "machine")
"""Parts of a result's header that an order keeps."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy as measured on prompts [P]."""

    name: str
    rates: NDArray[np.float64]
    """Success rate of each prompt, shrunk."""
    rows: float
    """Mean rows of a sample that fails or succeeds."""
    perplexity: float | None = None


def candidate(
    name: str, samples: Sequence[Mapping[str, Any]], prompts: Sequence[str], perplexity: float | None = None
) -> Candidate:
    """A policy's measured samples, by prompt. Raises `ValueError` where a prompt has none."""
    hits, counts = np.zeros(len(prompts)), np.zeros(len(prompts))
    index = {prompt: at for at, prompt in enumerate(prompts)}
    for sample in samples:
        hits[index[sample["prompt_id"]]] += sample["satisfied"]
        counts[index[sample["prompt_id"]]] += 1
    if not counts.all():
        raise ValueError(f"policy {name} has no sample of {prompts[int(counts.argmin())]}")
    mean = (hits.sum() + 0.5) / (counts.sum() + 1.0)  # never 0 or 1: nothing is certain to fail or to succeed
    rates = (hits + PRIOR * mean) / (counts + PRIOR)
    return Candidate(name, rates, sum(sample["rows"] for sample in samples) / len(samples), perplexity)


def greedy_order(candidates: Sequence[Candidate], length: int) -> tuple[str, ...]:
    """Names of `length` attempts. Raises `ValueError` without candidates."""
    if not candidates:
        raise ValueError("no policy is left to order")
    unsolved = np.ones(candidates[0].rates.size)
    order = []
    for _ in range(length):
        gains = [float(unsolved @ one.rates) / one.rows for one in candidates]
        best = candidates[int(np.argmax(gains))]
        order.append(best.name)
        unsolved = unsolved * (1.0 - best.rates)
    return tuple(order)


def learn(result: Mapping[str, Any], *, length: int = 6, fluency_factor: float | None = None) -> list[AttemptOrder]:
    """An order for each family in an evaluation (`astargate evaluate --out`); tasks that are no family are left out."""
    orders = []
    for task, cells in result["tasks"].items():
        if task not in FAMILIES:
            continue
        candidates = [
            candidate(name, samples, _prompts(samples), _perplexity(name, cells["policies"]))
            for name, samples in rounds(cells["samples"]).items()
        ]
        if fluency_factor is not None:
            candidates = _fluent(candidates, fluency_factor)
        evidence = {
            **{name: result[name] for name in PROVENANCE if name in result},
            "prompts": int(candidates[0].rates.size),
            "splits": list(result.get("settings", {}).get("splits", ())),
            "fluency_factor": fluency_factor,
            "measured": {
                c.name: {"success": float(c.rates.mean()), "rows": c.rows, "perplexity": c.perplexity}
                for c in candidates
            },
        }
        orders.append(AttemptOrder(task, result["model_hash"], greedy_order(candidates, length), evidence))
    return orders


def rounds(cells: SamplesByPolicy) -> SamplesByPolicy:
    """Every policy that can be an attempt; one with repair also with fewer rounds (`TRUNCATED`), read off its run."""
    attempts: dict[str, Sequence[SampleEntry]] = {}
    for name, samples in cells.items():
        named = parse_policy(name)
        if named.attempts > 1 or named.policy.preset == "auto":
            continue
        repair = named.policy.repair
        for limit in TRUNCATED if repair and samples[0].get("history") else ():
            if repair and limit < repair.max_rounds:
                fewer = re.sub(r"(:repair\d+x)\d+", rf"\g<1>{limit}", name) if limit else _unrepaired(name)
                if fewer not in cells and fewer not in attempts:
                    attempts[fewer] = truncated(samples, limit + 1)
        attempts[name] = samples
    return attempts


def _perplexity(name: str, measured: Mapping[str, Any]) -> float | None:
    """Of a policy's texts; of a truncated policy, of the run that it is read off, which shares most of its texts."""
    same = [row for other, row in measured.items() if _unrepaired(other) == _unrepaired(name)]
    value: float | None = measured.get(name, same[0]).get("fluency", {}).get("perplexity")
    return value


def _unrepaired(name: str) -> str:
    return re.sub(r":repair[^:]*", "", name)


def _prompts(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({sample["prompt_id"] for sample in samples})


def _fluent(candidates: Sequence[Candidate], factor: float) -> list[Candidate]:
    bound = next((c.perplexity for c in candidates if c.name == REFERENCE), None)
    if bound is None:
        raise ValueError(f"a fluency bound needs {REFERENCE} among the policies")
    return [c for c in candidates if c.perplexity is None or c.perplexity <= factor * bound]


def run(result: Path, out: Path, length: int = 6, fluency_factor: float | None = None) -> list[AttemptOrder]:
    """Learn orders from a result file and write them beside those of other families and models.

    Raises `ValueError` where the result has no sample of some prompt or `out` is no file of cascades.
    """
    learned = learn(json.loads(result.read_text(encoding="utf-8")), length=length, fluency_factor=fluency_factor)
    keys = {(order.family, order.model_hash) for order in learned}
    earlier = read_cascades(out).plans if out.is_file() else ()
    kept = [order for order in earlier if (order.family, order.model_hash) not in keys]
    write_cascades(Cascades((*kept, *learned)), out)
    return learned
