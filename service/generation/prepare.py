"""A request becomes jobs."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from decoding.constraints import AnyConstraint, parse
from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import GateResolution, GateResolver, Regime
from decoding.models.protocol import DenoisingModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.presets import plainly_guided, resolve_policy
from decoding.request.job import Job, Sampling, record_for, regime_of
from decoding.request.row_estimates import most_rows, selection_rows
from decoding.request.validation import check_job
from decoding.sampling.noise import NoiseKey
from gate_models.gates.sources import SOURCES, watched_sources
from gate_models.policies.cascade import affordable, resolve_attempt_gates, shipped_cascades, within_budget
from service.backend.watched_gates import SuspendedChoice
from service.config.settings import Settings
from service.generation.canvas import fitting_canvas
from service.generation.repair_anchor import NOWHERE, PeakChoice, asks_for_peak, at_peak, repair_of
from service.http.errors import ApiError, invalid
from service.schemas.base import MAX_SEED, MAX_TRACE_STEPS
from service.schemas.generate import GenerateRequest
from service.schemas.policy import PolicyRequest

FallbackCode = Literal["no_family", "no_gate", "outside_regime", "suspended"]


class RecordedHorizons(Protocol):
    """Finds what was measured for a job: the horizon, and the step at which q0 is highest."""

    def choice(self, job: Job, regime: Regime) -> GateResolution: ...

    def peak(self, job: Job, regime: Regime) -> PeakChoice: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been understood: one job a sample, and what the response must remember."""

    id: str
    created: int
    jobs: tuple[Job, ...]
    constraint: AnyConstraint | None
    choice: GateResolution
    fallback: FallbackCode | None
    trace: bool
    audit_share: float | None = None
    """The operator's share of this request's samples for the shadow audit; None: the server's."""
    chosen: frozenset[int] = frozenset()
    """Samples that the shadow audit compares."""
    anchor_reason: str | None = None
    """Why repair begins at the end of the run and not at the peak of q0."""

    @property
    def job(self) -> Job:
        """The first sample's; the others differ in their noise alone."""
        return self.jobs[0]

    @property
    def policy(self) -> DecodingPolicy:
        return self.job.policy


def prepare(
    request: GenerateRequest,
    model: DenoisingModel,
    gates: GateResolver,
    settings: Settings,
    recorded: RecordedHorizons | None = None,
    encode: Callable[[str], list[int]] | None = None,
) -> Prepared:
    """Translate a request. Raises `ApiError`, `PolicyError`, `ConstraintError` or `JobError`, each naming its field.

    `recorded` knows the horizons that the caller has measured; `encode` makes ids of the prompt (None: the model's
    template of one user turn). Tokenizes, plans and looks those up: keep it off the
    event loop.
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
    _check_used(request, policy)
    seed = secrets.randbelow(2**32) if request.seed is None else request.seed
    if seed + request.n - 1 > MAX_SEED:
        raise invalid("seed", f"must leave room for n samples: seed + n - 1 may be at most {MAX_SEED}")
    job = Job(
        prompt_ids=_prompt_ids(request, constraint, model, encode or model.codec.encode_prompt),
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
        predicate=constraint,
        record="stats" if request.trace else "commits",
        deadline=_deadline(request.deadline_s, settings),
    )
    job, choice, fallback = (
        (_with_attempts(job, gates, model.spec.hash, request.policy), GateResolution(None), None)
        if policy.preset == "auto"
        else _with_gate(job, gates, recorded, model.spec.hash)
    )
    job, anchor_reason = _with_anchor(job, request.policy, recorded, model.spec.hash)
    check_job(job, model.spec, invariant=settings.batch_invariant)
    _check_work(job, request.n, settings, trace=request.trace)
    jobs = tuple(replace(job, noise=NoiseKey(seed + index)) for index in range(request.n))
    name, created, share = f"gen-{uuid.uuid4().hex}", int(time.time()), request.audit_share
    return Prepared(
        name, created, jobs, constraint, choice, fallback, request.trace, share, anchor_reason=anchor_reason
    )


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


def _check_used(request: GenerateRequest, policy: DecodingPolicy) -> None:
    """Refuse what the client set and nothing reads."""
    if policy.guidance_scale == 0.0 and policy.preset != "base":
        raise invalid(
            "policy.guidance_scale", f"is 0, so preset '{policy.preset}' would guide nothing; use preset 'base'"
        )
    if "render_constraint" in request.model_fields_set and request.constraint is None:
        raise invalid("render_constraint", "is not used without a constraint; leave it out")
    if "confidence" in request.model_fields_set and policy.order == "random":
        raise invalid("confidence", "is not used with policy.order 'random'; leave it out")
    watched = policy.preset not in ("auto", "base") and SOURCES[policy.gate.source].watched
    if request.audit_share is not None and not watched:
        raise invalid("audit_share", f"is only used with a gate of source {', '.join(watched_sources())}; leave it out")


def _check_work(job: Job, samples: int, settings: Settings, *, trace: bool) -> None:
    """Bound the rows of all samples together, and the steps of their traces. `job` is valid and has its gate."""
    limit = settings.max_request_rows
    repair = job.policy.repair
    if repair is not None and (rows := selection_rows(job, repair)) > settings.max_selection_rows:
        raise invalid(
            "policy.repair.selector",
            f"'{repair.selector}' may take {rows} forward evaluations a round, this server allows "
            f"{settings.max_selection_rows}; use fewer rollouts, a later anchor, or a selector without rollouts",
            "too_large",
        )
    if job.judged or samples * job.full_cfg_equivalent > limit:  # no plan costs more, and the plan itself takes time
        rows = most_rows(job)
        if samples * rows > limit:
            estimate = f"an estimated {samples * rows} forward evaluations, this server takes at most {limit}"
            raise _too_large(estimate, samples, limit // rows)
    if trace and samples * job.steps > MAX_TRACE_STEPS:
        estimate = f"a trace of n * steps = {samples * job.steps} steps, the longest is {MAX_TRACE_STEPS}"
        raise _too_large(estimate, samples, MAX_TRACE_STEPS // job.steps)


def _too_large(estimate: str, samples: int, most: int) -> ApiError:
    """A 422 for a request of which `most` samples would fit; where not even one does, its steps are at fault."""
    if most == 0:
        return invalid("steps", f"is too large: the request asks for {estimate}", "too_large")
    return invalid("n", f"is too large: {samples} samples ask for {estimate} (n = {most} as it stands)", "too_large")


def _given(policy: PolicyRequest | None) -> dict[str, Any]:
    """The policy fields that the client set."""
    if policy is None:
        return {}
    given = policy.model_dump(exclude_none=True, exclude={"preset", "gate", "repair"})
    if policy.gate is not None:
        given["gate"] = GateSettings(**policy.gate.model_dump(exclude_none=True))
    if policy.repair is not None:
        given["repair"] = repair_of(policy.repair)
    return given


def _prompt_ids(
    request: GenerateRequest,
    constraint: AnyConstraint | None,
    model: DenoisingModel,
    encode: Callable[[str], list[int]],
) -> tuple[int, ...]:
    parts = [request.prompt] if request.prompt.strip() else []
    if constraint is not None and request.render_constraint:
        parts.append(constraint.instruction())
    if not parts:
        hint = "set render_constraint to true, or" if constraint is not None else "give a constraint, or"
        raise invalid("prompt", f"is empty; {hint} say what to write")
    try:
        ids = encode(" ".join(parts))
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


def _with_attempts(job: Job, gates: GateResolver, model_hash: str, asked: PolicyRequest | None) -> Job:
    """`job` with the cascade of its family, and a budget where the client set none."""
    scale = None if asked is None else asked.guidance_scale
    attempts = shipped_cascades().attempts(job.family, model_hash, job.gen_length, scale)
    return affordable(
        resolve_attempt_gates(replace(job, policy=within_budget(job), attempts=attempts), gates, model_hash)
    )


def _with_gate(
    job: Job, gates: GateResolver, recorded: RecordedHorizons | None, model_hash: str
) -> tuple[Job, GateResolution, FallbackCode | None]:
    """`job` with the gate that its policy asks for, or as `on_fallback` says where there is none (contract 7)."""
    if job.starts_base:
        return job, GateResolution(NeverGate()), None
    regime = regime_of(job, model_hash)
    measured = recorded if job.policy.gate.source == "recorded" else None
    choice = gates.resolve(job.policy.gate, regime) if measured is None else measured.choice(job, regime)
    if choice.gate is not None:
        return replace(job, gate=choice.gate, record=record_for([choice.gate], job.record)), choice, None
    reason = choice.fallback_reason or "no gate is available"
    if job.policy.on_fallback == "reject":
        raise invalid("policy.gate.source", f"cannot be served: {reason}", "gate_unavailable")
    code: FallbackCode = (
        "suspended"
        if isinstance(choice, SuspendedChoice)
        else "no_family"
        if regime.family is None and measured is None
        else "outside_regime"
        if choice.nearest_regime
        else "no_gate"
    )
    policy = plainly_guided(job.policy)
    return replace(job, policy=policy, handed_off=policy.on_fallback == "base"), choice, code


def _with_anchor(
    job: Job, asked: PolicyRequest | None, recorded: RecordedHorizons | None, model_hash: str
) -> tuple[Job, str | None]:
    """`job`, as it will be decoded, with its repair at the peak of q0 where that is asked for; or why it is not."""
    if asked is None or not asks_for_peak(asked.repair):
        return job, None
    found = PeakChoice(None, NOWHERE) if recorded is None else recorded.peak(job, regime_of(job, model_hash))
    return at_peak(job, found), found.reason
