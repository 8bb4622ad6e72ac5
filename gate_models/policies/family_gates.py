"""Gates that a policy's name leaves open, resolved offline as the server resolves them: calibrated and learned ones.

What they are depends on the family, the model and the whole setting. Where the server would fall back, guidance stays
on to the end (`on_fallback: full_cfg`, by name): the texts are full CFG's, and count (intention to treat).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import Gate
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.presets import plainly_guided
from decoding.request.job import Attempt, Job, record_for
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.sources import SOURCES


def with_gate(job: Job, gate: Gate) -> Job:
    """`job` and its attempts under `gate`, recorded as it needs; under none they are plain full CFG, as a fallback."""

    def served(policy: DecodingPolicy) -> DecodingPolicy:
        return plainly_guided(policy) if isinstance(gate, NeverGate) else policy

    attempts = tuple(Attempt(served(attempt.policy), gate) for attempt in job.attempts)
    record = record_for([gate], job.record)
    return replace(job, gate=gate, policy=served(job.policy), attempts=attempts, record=record)


def evidence(setting: GateSettings, gates: Sequence[Gate], held: LearnedGates) -> tuple[Any, ...]:
    """What `gates`, resolved from `setting`, may be made of: part of what a result depends on."""
    shipped = SOURCES[setting.source].calibrated
    calibrations: tuple[Any, ...] = () if shipped is None else (shipped(),)
    versions = sorted({bundle.version for bundle in held.bundles} & {gate.version for gate in gates})
    return (*calibrations, versions) if versions or shipped is None else calibrations
