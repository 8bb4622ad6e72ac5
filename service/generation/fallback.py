"""What a request gets that no gate of its own fits: `drained` at a pooled threshold, full CFG, or base decoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from decoding.gates.protocol import GateResolution, GateResolver
from decoding.policy.gate import GateSettings
from decoding.policy.presets import plainly_guided
from decoding.request.job import Job, record_for, regime_of
from service.backend.watched_gates import SuspendedChoice

FallbackCode = Literal["no_family", "no_gate", "outside_regime", "suspended"]
DRAINED: Final = GateSettings("drained")


def fallen_back(
    job: Job, choice: GateResolution, code: FallbackCode, gates: GateResolver, model_hash: str
) -> tuple[Job, GateResolution]:
    """`job`, whose gate `choice` could not name, as its policy's `on_fallback` decodes it, and what is told of that.

    `drained` becomes full CFG where it is known to do harm or is not what was asked for: a gate that the shadow audit
    has suspended, guidance that was measured not to drain, a promise (a margin).
    """
    if job.policy.on_fallback == "drained":
        reason = choice.fallback_reason or "no gate is available"
        refusal = _kept_guided(job, code)
        if refusal is None:
            served, drained = _drained(job, gates, model_hash)
            refusal = drained.fallback_reason
            if drained.gate is not None:
                told = reason if refusal is None else f"{reason}; {refusal}"
                return served, replace(drained, fallback_reason=told, nearest_regime=choice.nearest_regime)
        if refusal:
            choice = replace(choice, fallback_reason=f"{reason}; guidance stays on to the end: {refusal}")
    policy = plainly_guided(job.policy)
    return replace(job, policy=policy, handed_off=policy.on_fallback == "base"), choice


def _kept_guided(job: Job, code: FallbackCode) -> str | None:
    """Why full CFG is right whatever was measured, empty where the gate's own reason says so; None where it is not."""
    if code == "suspended":
        return "the audit of that gate goes on beside full CFG"
    if job.policy.gate.source == "risk" or job.policy.gate.margin is not None:
        return "a margin was asked for, and no other gate promises one"
    if job.policy.gate.source == "drained":
        return ""
    return None


def _drained(job: Job, gates: GateResolver, model_hash: str) -> tuple[Job, GateResolution]:
    """`job` with a serial tail under the threshold that was measured for it, in its own order if that was measured."""
    policy = replace(job.policy.with_tail_width(1), gate=DRAINED)
    served = replace(job, policy=policy)
    drained = gates.resolve(DRAINED, regime_of(served, model_hash))
    if drained.evidence == "none":
        served = replace(served, policy=plainly_guided(policy))
        drained = gates.resolve(DRAINED, regime_of(served, model_hash))
    if drained.gate is None:
        return job, drained
    return replace(served, gate=drained.gate, record=record_for([drained.gate], job.record)), drained


def code_of(choice: GateResolution, *, nameless: bool) -> FallbackCode:
    """What kept a request from its gate. `nameless`: it has no family, and asked for the gate of one."""
    if isinstance(choice, SuspendedChoice):
        return "suspended"
    if nameless:
        return "no_family"
    return "outside_regime" if choice.nearest_regime else "no_gate"
