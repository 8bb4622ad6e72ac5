"""A request becomes decoding jobs: one a sample, with the gate that decides when guidance ends."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import Final, Protocol

from decoding.constraints import Constraint
from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import GateResolution, GateResolver, Regime
from decoding.models.protocol import DenoisingModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.request.job import Job, record_for, regime_of
from decoding.sampling.noise import NoiseKey
from gate_models.gates.sources import SOURCES, watched_sources
from gate_models.policies.cascade import affordable, resolve_attempt_gates, shipped_cascades, within_budget
from service.config.settings import Settings
from service.generation.fallback import FallbackCode, code_of, fallen_back
from service.generation.job import check_model, check_request, job_of
from service.generation.repair_anchor import NOWHERE, PeakChoice, asks_for_peak, at_peak
from service.generation.request import CanvasRequest, FieldNames
from service.generation.template import check_settled, sample_job
from service.http.errors import invalid
from service.schemas.generate import Detail, GenerateRequest
from service.schemas.policy import PolicyRequest


class RecordedHorizons(Protocol):
    """Finds what was measured for a job: the horizon, and the step at which q0 is highest."""

    def choice(self, job: Job, regime: Regime) -> GateResolution: ...

    def peak(self, job: Job, regime: Regime) -> PeakChoice: ...


NEGATIVE: Final = "a negative prompt stands where gates were measured with the masked prompt"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How much an answer of /generate says."""

    detail: Detail = "full"
    nulls: bool = True
    """Whether fields that hold nothing are written, as null."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been understood: one job a sample, and what the response must remember."""

    id: str
    created: int
    jobs: tuple[Job, ...]
    choice: GateResolution
    fallback: FallbackCode | None
    trace: bool
    audit_share: float | None = None
    """The operator's share of this request's samples for the shadow audit; None: the server's."""
    prompts: int = 1
    """Prompts of the request; as many jobs for each, in their order."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these."""
    chosen: frozenset[int] = frozenset()
    """Samples that the shadow audit compares."""
    form: AnswerForm = AnswerForm()
    anchor_reason: str | None = None
    """Why repair begins at the end of the run and not at the peak of q0."""

    @property
    def job(self) -> Job:
        """The first sample's; the others differ in their noise, and where there are several prompts in those."""
        return self.jobs[0]

    @property
    def first_jobs(self) -> tuple[Job, ...]:
        """The first job of each prompt."""
        return self.jobs[:: len(self.jobs) // self.prompts]

    @property
    def constraint(self) -> Constraint | None:
        return self.job.predicate

    @property
    def policy(self) -> DecodingPolicy:
        return self.job.policy


def prepare(
    request: GenerateRequest,
    model: DenoisingModel,
    gates: GateResolver,
    settings: Settings,
    recorded: RecordedHorizons | None = None,
    *,
    arrived: float | None = None,
) -> Prepared:
    """A request to /generate as jobs; `prepare_canvas` says what it raises. Its deadline counts from `arrived`."""
    check_model(request.model, model.spec)
    asked = CanvasRequest.of(request, samples=request.n, arrived=arrived)
    prepared = prepare_canvas(asked, model, gates, settings, recorded, trace=request.trace)
    prepared = replace(prepared, form=AnswerForm(request.detail, nulls=request.nulls))
    if request.audit_share is None:
        return prepared
    policy = prepared.policy
    if policy.preset in ("auto", "base") or not SOURCES[policy.gate.source].watched:
        raise invalid("audit_share", f"is only used with a gate of source {', '.join(watched_sources())}; leave it out")
    return replace(prepared, audit_share=request.audit_share)


def prepare_canvas(
    request: CanvasRequest,
    model: DenoisingModel,
    gates: GateResolver,
    settings: Settings,
    recorded: RecordedHorizons | None = None,
    *,
    trace: bool = False,
) -> Prepared:
    """The request's jobs, each with the gate that its policy asks for; `recorded` holds the horizons of its caller.

    Raises `ApiError`, `PolicyError`, `ConstraintError` or `JobError`, each naming its field. Tokenizes, plans and reads
    the database: keep it off the event loop.
    """
    job = replace(job_of(request, model, settings), record="stats" if trace else "commits")
    if reads_database(request.policy):
        check_settled(request, "a horizon is measured for one length")
    model_hash = model.spec.hash
    resolution, fallback = GateResolution(None), None
    if job.policy.preset == "auto":
        job = _with_attempts(job, gates, model_hash, request.policy)
    else:
        job, resolution, fallback = _with_gate(job, gates, recorded, model_hash, request.names)
    job, anchor_reason = _with_anchor(job, request.policy, recorded, model_hash)
    check_request(job, request, model.spec, settings, trace=trace)
    return Prepared(
        id=f"gen-{uuid.uuid4().hex}",
        created=int(time.time()),
        jobs=tuple(_sample(job, index, request, model) for index in range(request.samples)),
        choice=resolution,
        fallback=fallback,
        trace=trace,
        anchor_reason=anchor_reason,
    )


def _sample(job: Job, index: int, request: CanvasRequest, model: DenoisingModel) -> Job:
    """The job of one sample: its noise, and its lengths of a template's blanks."""
    own = replace(job, noise=NoiseKey(job.noise.seed + index))
    return own if request.template is None else sample_job(own, request, model)


def reads_database(policy: PolicyRequest | None) -> bool:
    """Whether preparing a request of this policy looks up what its caller has measured."""
    if policy is None:
        return False
    return asks_for_peak(policy.repair) or (policy.gate is not None and policy.gate.source == "recorded")


def _with_attempts(job: Job, gates: GateResolver, model_hash: str, asked: PolicyRequest | None) -> Job:
    """`job` with the cascade of its family, and a budget where the client set none."""
    scale = None if asked is None else asked.guidance_scale
    attempts = shipped_cascades().attempts(job.family, model_hash, job.gen_length, scale)
    return affordable(
        resolve_attempt_gates(replace(job, policy=within_budget(job), attempts=attempts), gates, model_hash)
    )


def _with_gate(
    job: Job, gates: GateResolver, recorded: RecordedHorizons | None, model_hash: str, names: FieldNames
) -> tuple[Job, GateResolution, FallbackCode | None]:
    """`job` with the gate that its policy asks for, or as `on_fallback` says where there is none (contract 7)."""
    if job.starts_base:
        return job, GateResolution(NeverGate()), None
    regime = regime_of(job, model_hash)
    measured = recorded if job.policy.gate.source == "recorded" else None
    if job.negative_ids is not None and SOURCES[job.policy.gate.source].learned:
        choice = GateResolution(None, NEGATIVE)
    else:
        choice = gates.resolve(job.policy.gate, regime) if measured is None else measured.choice(job, regime)
    if choice.gate is not None:
        return replace(job, gate=choice.gate, record=record_for([choice.gate], job.record)), choice, None
    reason = choice.fallback_reason or "no gate is available"
    if job.policy.on_fallback == "reject":
        raise invalid("policy.gate.source", f"cannot be served: {names.in_reason(reason)}", "gate_unavailable")
    code = code_of(choice, nameless=regime.family is None and measured is None)
    return *fallen_back(job, choice, code, gates, model_hash), code


def _with_anchor(
    job: Job, asked: PolicyRequest | None, recorded: RecordedHorizons | None, model_hash: str
) -> tuple[Job, str | None]:
    """`job`, as it will be decoded, with its repair at the peak of q0 where that is asked for; or why it is not."""
    if asked is None or not asks_for_peak(asked.repair):
        return job, None
    if job.negative_ids is not None:
        recorded = None  # horizons are measured against the masked prompt
    peak = PeakChoice(None, NOWHERE) if recorded is None else recorded.peak(job, regime_of(job, model_hash))
    return at_peak(job, peak), peak.reason
