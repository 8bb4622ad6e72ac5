"""Gates that stand for a family's calibrated setting, offline as the server resolves them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from decoding import policy as policies
from decoding.gating import Gate, NeverGate
from decoding.job import Attempt, Job, regime_of
from decoding.policy import DecodingPolicy, plainly_guided
from gate_models.constants import ConstantGates, shipped_cuts
from gate_models.drained import DrainedGates, shipped_thresholds


def needs_family(setting: policies.Gate) -> bool:
    """Whether the gate of `setting` is known only with the family: a constant cut, a drained threshold."""
    return setting.source == "constant" or (setting.source == "drained" and setting.threshold is None)


def family_gate(job: Job, model_hash: str) -> Gate:
    """The gate that the server gives `job`; guidance to the end where it has none (`on_fallback`'s default)."""
    return shipped_gates().resolve(job.policy.gate, regime_of(job, model_hash)).gate or NeverGate()


def as_served(job: Job, model_hash: str) -> Job:
    """`job` with its family's gate where it asks for one, and its attempts too; without a gate they are plain full CFG,
    as a fallback is.
    """
    if not needs_family(job.policy.gate):
        return job
    gate = family_gate(job, model_hash)

    def served(policy: DecodingPolicy) -> DecodingPolicy:
        return plainly_guided(policy) if isinstance(gate, NeverGate) else policy

    attempts = tuple(Attempt(served(attempt.policy), gate) for attempt in job.attempts)
    return replace(job, gate=gate, policy=served(job.policy), attempts=attempts)


@cache
def shipped_gates() -> ConstantGates:
    """The calibrated gates of the package, read once."""
    return ConstantGates(tuple(shipped_cuts()), DrainedGates(tuple(shipped_thresholds())))


def evidence(setting: policies.Gate) -> Any:
    """All that the gates of `setting` may be made of: part of what a result depends on."""
    return shipped_cuts() if setting.source == "constant" else shipped_thresholds()
