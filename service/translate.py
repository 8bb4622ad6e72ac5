"""A request becomes jobs."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Literal

from decoding.constraints import AnyConstraint, parse
from decoding.gating import GateChoice, GateResolver, NeverGate
from decoding.job import Job, Sampling, regime_of
from decoding.models.protocol import DenoisingModel
from decoding.noise import NoiseKey
from decoding.policy import DecodingPolicy, Gate, resolve_policy
from service.canvas import fitting_canvas
from service.errors import invalid
from service.schemas import MAX_SEED, GenerateRequest, PolicyRequest
from service.settings import Settings

FallbackCode = Literal["no_family", "no_gate", "outside_regime"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been understood: one job a sample, and what the response must remember."""

    id: str
    created: int
    jobs: tuple[Job, ...]
    constraint: AnyConstraint | None
    choice: GateChoice
    fallback: FallbackCode | None
    trace: bool

    @property
    def job(self) -> Job:
        """The first sample's; the others differ in their noise alone."""
        return self.jobs[0]

    @property
    def policy(self) -> DecodingPolicy:
        return self.job.policy


def prepare(request: GenerateRequest, model: DenoisingModel, gates: GateResolver, settings: Settings) -> Prepared:
    """Translate a request. Raises `ApiError`, `PolicyError` or `ConstraintError`, each naming the field at fault.

    Tokenizes: keep it off the event loop.
    """
    constraint = None if request.constraint is None else parse(request.constraint)
    family = _family(request.family, constraint)
    canvas = fitting_canvas(
        request.gen_length,
        request.steps,
        request.block_length,
        False if request.suppress_eos and request.defer_eos is None else request.defer_eos,
        constraint,
        model.codec,
        model.spec,
    )
    _check_size(request.n, canvas.gen_length, settings)
    policy = resolve_policy(
        (request.policy and request.policy.preset) or "handoff",
        _given(request.policy),
        gen_length=canvas.gen_length,
    )
    seed = secrets.randbelow(2**32) if request.seed is None else request.seed
    if seed + request.n - 1 > MAX_SEED:
        raise invalid("seed", f"must leave room for n samples: seed + n - 1 may be at most {MAX_SEED}")
    job = Job(
        prompt_ids=_prompt_ids(request, constraint, model),
        gen_length=canvas.gen_length,
        steps=canvas.steps,
        policy=policy,
        noise=NoiseKey(seed),
        sampling=Sampling(
            temperature=request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            confidence=request.confidence,
            eos_fill=request.eos_fill,
            suppress_eos=request.suppress_eos,
            defer_eos=canvas.defer_eos,
        ),
        block_length=canvas.block_length,
        family=family,
        constraint=None if constraint is None else constraint.to_spec(),
        record="stats" if request.trace else "commits",
        deadline=_deadline(request.deadline_s, settings),
    )
    job, choice, fallback = _with_gate(job, gates, model.spec.hash)
    jobs = tuple(replace(job, noise=NoiseKey(seed + index)) for index in range(request.n))
    return Prepared(f"gen-{uuid.uuid4().hex}", int(time.time()), jobs, constraint, choice, fallback, request.trace)


def _family(named: str | None, constraint: AnyConstraint | None) -> str | None:
    own = None if constraint is None else constraint.family
    if named is not None and named != own:
        belongs = f"this constraint's is '{own}'" if own else "this request belongs to none"
        raise invalid("family", f"must be left out or the constraint's own; {belongs}")
    return own


def _check_size(samples: int, gen_length: int, settings: Settings) -> None:
    if samples > settings.max_samples:
        raise invalid("n", f"must be at most {settings.max_samples} on this server")
    if samples * gen_length > settings.max_request_tokens:
        most = max(1, settings.max_request_tokens // gen_length)
        raise invalid(
            "n",
            f"is too large: n * gen_length is {samples * gen_length}, this server takes at most "
            f"{settings.max_request_tokens} (n = {most} at this gen_length)",
        )


def _given(policy: PolicyRequest | None) -> dict[str, Any]:
    """The policy fields that the client set."""
    if policy is None:
        return {}
    given = policy.model_dump(exclude_none=True, exclude={"preset", "gate"})
    if policy.gate is not None:
        given["gate"] = Gate(**policy.gate.model_dump(exclude_none=True))
    return given


def _prompt_ids(request: GenerateRequest, constraint: AnyConstraint | None, model: DenoisingModel) -> tuple[int, ...]:
    parts = [request.prompt] if request.prompt.strip() else []
    if constraint is not None and request.render_constraint:
        parts.append(constraint.instruction())
    if not parts:
        hint = "set render_constraint to true, or" if constraint is not None else "give a constraint, or"
        raise invalid("prompt", f"is empty; {hint} say what to write")
    try:
        ids = model.codec.encode_prompt(" ".join(parts))
    except ValueError as error:
        raise invalid("prompt", f"cannot be encoded: {error}") from None
    if len(ids) > model.spec.max_prompt:
        raise invalid("prompt", f"has {len(ids)} tokens; model {model.spec.name} takes at most {model.spec.max_prompt}")
    return tuple(ids)


def _deadline(seconds: float | None, settings: Settings) -> float | None:
    if seconds is not None and seconds > settings.max_deadline:
        raise invalid("deadline_s", f"must be at most {settings.max_deadline:g} on this server")
    seconds = settings.default_deadline if seconds is None else seconds
    return None if seconds is None else time.monotonic() + seconds


def _with_gate(job: Job, gates: GateResolver, model_hash: str) -> tuple[Job, GateChoice, FallbackCode | None]:
    """`job` with the gate that its policy asks for, or as `on_fallback` says where there is none (contract 7)."""
    if job.starts_base:
        return job, GateChoice(NeverGate()), None
    regime = regime_of(job, model_hash)
    choice = gates.resolve(job.policy.gate, regime)
    if choice.gate is not None:
        record = "stats" if choice.gate.needs_stats else job.record
        return replace(job, gate=choice.gate, record=record), choice, None
    reason = choice.fallback_reason or "no gate is available"
    if job.policy.on_fallback == "reject":
        raise invalid("policy.gate.source", f"cannot be served: {reason}", "gate_unavailable")
    code: FallbackCode = (
        "no_family" if regime.family is None else "outside_regime" if choice.nearest_regime else "no_gate"
    )
    return replace(job, handed_off=job.policy.on_fallback == "base"), choice, code
