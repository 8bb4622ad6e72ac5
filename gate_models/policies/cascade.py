"""Preset `auto`: what is tried in turn until the predicate holds, cheap and likely attempts first.

The order is learned for each family and model from measured success and rows
(`gate_models.offline.deployment.learn_cascade`). Where nothing was measured a general order serves. The predicates are
deterministic: a failure is known when it happens, and the budget is spent only on texts that failed so far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from decoding.gates.protocol import GateResolver
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.request.job import Attempt, Job, record_for, regime_of
from gate_models.gates.calibrated.files import shipped_file
from gate_models.gates.sources import RECORDED, needs_family
from gate_models.policies.names import NamedPolicy, parse_policy

FORMAT: Final = 1
UNMEASURED: Final = ("handoff:0.25:repair3x2", *["full_cfg:repair3x4"] * 4)
"""A cheap attempt, then guidance throughout with fresh seeds; a round of repair costs less than any fresh text. The
first has so few rounds that the default budget holds a text of full CFG behind them (from 16 steps on).
"""
CHEAPEST: Final = "base:repair3x4"
"""What a budget gets that no attempt of the order fits."""
BUDGET_IN_FULL_CFG: Final = 2
"""Default budget of `auto`, in runs of full CFG."""


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """The order of one family on one model; names as in `policies.names`."""

    family: str
    model_hash: str
    attempts: tuple[str, ...]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """How it was measured: prompts, success and rows of every candidate, seed."""


@dataclass(frozen=True, slots=True)
class Cascades:
    """All plans."""

    plans: tuple[AttemptOrder, ...] = ()

    def plan(self, family: str | None, model_hash: str) -> tuple[str, ...]:
        """Names of the attempts; those of another family or model are never borrowed."""
        of_family = (plan.attempts for plan in self.plans if (plan.family, plan.model_hash) == (family, model_hash))
        return next(of_family, UNMEASURED)

    def attempts(
        self, family: str | None, model_hash: str, gen_length: int, guidance_scale: float | None = None
    ) -> tuple[Attempt, ...]:
        """The attempts, cut to the canvas; `guidance_scale` replaces that of every guided one (None: their own)."""
        attempts = []
        for name in self.plan(family, model_hash):
            named = parse_policy(name)
            policy = named.policy
            widths = {part: min(getattr(policy, part), gen_length) for part in ("guided_width", "tail_width")}
            policy = replace(policy, **widths)
            if guidance_scale is not None and policy.guidance_scale > 0.0:
                policy = replace(policy, guidance_scale=guidance_scale)
            attempts.append(Attempt(policy, named.gate))
        return tuple(attempts)


def within_budget(job: Job) -> DecodingPolicy:
    """The policy of an `auto` job, with the default budget where it has none."""
    budget = job.policy.budget_rows or BUDGET_IN_FULL_CFG * job.full_cfg_equivalent
    return replace(job.policy, budget_rows=budget)


def resolve_attempt_gates(job: Job, gates: GateResolver, model_hash: str) -> Job:
    """`job` with the gates that its attempts leave open. An attempt that none serves in this setting is left out: the
    order was measured with it. Where no attempt is left, the general order is tried.
    """
    attempts = []
    for index, attempt in enumerate(job.attempts):
        if not needs_family(attempt.policy.gate):
            attempts.append(attempt)
        elif gate := gates.resolve(attempt.policy.gate, regime_of(job.attempt(index), model_hash)).gate:
            attempts.append(replace(attempt, gate=gate))
    if not attempts and job.attempts:
        attempts = list(Cascades().attempts(None, model_hash, job.open_length, job.policy.guidance_scale))
    return replace(job, attempts=tuple(attempts), record=record_for((attempt.gate for attempt in attempts), job.record))


def affordable(job: Job) -> Job:
    """`job` without the attempts whose first pass may take more than its whole budget. Where none fits, it is base
    decoding with repair (where that is too dear as well the job is refused, with the least budget that would do).
    """
    budget = job.policy.budget_rows
    rows = [job.attempt(index).first_pass_rows for index in range(len(job.attempts))]
    kept = tuple(a for a, needed in zip(job.attempts, rows, strict=True) if budget is None or needed <= budget)
    named = parse_policy(CHEAPEST)
    return replace(job, attempts=kept or (Attempt(named.policy, named.gate),))


def attempts_of(named: NamedPolicy, family: str | None, model_hash: str, gen_length: int) -> tuple[Attempt, ...]:
    """What a named policy tries in turn: the family's cascade for `auto`, the same policy again for best-of-n, else
    nothing but itself (empty).
    """
    if named.policy.preset == "auto":
        return shipped_cascades().attempts(family, model_hash, gen_length)
    return (Attempt(named.policy, named.gate),) * named.attempts if named.attempts > 1 else ()


@cache
def shipped_cascades() -> Cascades:
    """The plans that the package ships, read once."""
    path = shipped_path()
    return read_cascades(path) if path.is_file() else Cascades()


def shipped_path() -> Path:
    return shipped_file("cascades.json")


def read_cascades(path: Path) -> Cascades:
    """Read plans. Raises `ValueError` that names the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} is not {FORMAT}")
        plans = tuple(
            AttemptOrder(plan["family"], plan["model_hash"], tuple(plan["attempts"]), plan["evidence"])
            for plan in content["plans"]
        )
        for plan in plans:
            for name in plan.attempts:
                if parse_policy(name).policy.gate.source == RECORDED:
                    raise ValueError(f"attempt {name!r} needs a prompt's horizon, which no family has")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of cascades: {error}") from None
    return Cascades(plans)


def write_cascades(cascades: Cascades, path: Path) -> None:
    """Write plans as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "plans": [asdict(plan) for plan in cascades.plans]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
