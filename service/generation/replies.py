"""Finished canvases become the answer of /generate: texts, verdicts on the constraint, costs, gate decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from decoding.constraints import Verdict
from decoding.engine.handle import DecodingResult
from decoding.gates.builtin import DrainedGate
from decoding.gates.protocol import Evidence, Gate
from decoding.models.protocol import DenoisingModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import gate_defaults
from decoding.records.ledger import Ledger
from decoding.repair.passes import DecodedText
from decoding.request.job import Job
from gate_models.gates.calibrated.pooled import evidence_of
from gate_models.gates.sources import SOURCES
from service.generation.prepare import AnswerForm, Prepared
from service.generation.stop import before_stop
from service.schemas import generate as wire
from service.schemas.policy import ResolvedPolicy

Decided = Literal["handoff", "full_cfg", "base"]


def decision_of(job: Job, handoff_step: int | None) -> Decided:
    """What became of guidance in a finished run."""
    if job.starts_base:
        return "base"
    return "full_cfg" if handoff_step is None else "handoff"


def response(prepared: Prepared, outcomes: Sequence[DecodingResult], model: DenoisingModel) -> wire.GenerateResponse:
    """The whole answer. Decodes text and evaluates the constraint: keep it off the event loop."""
    return summary(prepared, [sample(prepared, i, outcome, model) for i, outcome in enumerate(outcomes)],
                   outcomes, model)  # fmt: skip


def written(reply: wire.GenerateResponse | wire.Sample, form: AnswerForm) -> str:
    """A reply as JSON, as long as its request wants it."""
    shown = _brief(reply) if form.detail == "brief" else reply
    if form.nulls:
        return shown.model_dump_json()
    # pydantic's `exclude_none` leaves those of plain dictionaries, such as a trace's steps
    return json.dumps(_without_nulls(shown.model_dump(mode="json")), separators=(",", ":"))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _brief(reply: wire.GenerateResponse | wire.Sample) -> wire.BriefResponse | wire.BriefSample:
    if isinstance(reply, wire.GenerateResponse):
        return wire.BriefResponse(id=reply.id, model=reply.model, samples=[_brief_sample(one) for one in reply.samples])
    return _brief_sample(reply)


def _brief_sample(reply: wire.Sample) -> wire.BriefSample:
    return wire.BriefSample(
        text=reply.text,
        satisfied=reply.satisfied,
        rows=reply.forward_evaluations.total,
        handoff=reply.gate.handoff_step,
        seed=reply.seed,
    )


def summary(
    prepared: Prepared, samples: list[wire.Sample], outcomes: Sequence[DecodingResult], model: DenoisingModel
) -> wire.GenerateResponse:
    """The answer around samples that are replies already."""
    job = prepared.job
    return wire.GenerateResponse(
        id=prepared.id,
        model=model.spec.name,
        model_hash=model.spec.hash,
        created=prepared.created,
        family=job.family,
        gen_length=job.gen_length,
        steps=job.steps,
        block_length=job.block_length,
        defer_eos=job.sampling.defer_eos,
        temperature=job.sampling.temperature,
        top_p=job.sampling.top_p,
        policy=policy(prepared.policy, job.gate),
        samples=samples,
        usage=usage(prepared, outcomes),
    )


def usage(prepared: Prepared, outcomes: Sequence[DecodingResult]) -> wire.Usage:
    """Tokens and forward evaluations of all samples."""
    return wire.Usage(
        prompt_tokens=sum(len(job.prompt_ids) for job in prepared.first_jobs),
        completion_tokens=sum(completion_tokens(outcome) for outcome in outcomes),
        forward_evaluations=sum(outcome.ledger.total for outcome in outcomes),
    )


def completion_tokens(outcome: DecodingResult) -> int:
    """Tokens that were written: those of the text, or of the blanks alone."""
    return len(outcome.content) if outcome.job.template is None else outcome.job.open_length


def sample(prepared: Prepared, index: int, outcome: DecodingResult, model: DenoisingModel) -> wire.Sample:
    """One sample with its verdict and its ledger."""
    whole = outcome.job.text(model.codec, outcome.content)
    text = before_stop(whole, prepared.stop)
    verdict: Verdict | None = None if prepared.constraint is None else prepared.constraint.evaluate(text)
    return wire.Sample(
        index=index,
        seed=outcome.job.noise.seed,
        text=text,
        blanks=None
        if outcome.job.template is None
        else list(outcome.job.template.fillings(model.codec, outcome.content)),
        approximate=outcome.approximate,
        finish_reason="stop" if outcome.finish_reason == "stop" or len(text) < len(whole) else "length",
        satisfied=verdict and verdict.satisfied,
        score=verdict and verdict.score,
        checks=[wire.CheckResult(**asdict(check)) for check in (verdict.checks if verdict else ())],
        forward_evaluations=forward_evaluations(outcome.ledger, outcome.job),
        gate=gate(prepared, outcome),
        repair=repair(prepared, outcome),
        trace=trace(outcome, model) if prepared.trace else None,
    )


def forward_evaluations(ledger: Ledger, job: Job) -> wire.ForwardEvaluations:
    return wire.ForwardEvaluations(
        conditional=ledger.of("conditional"),
        unconditional=ledger.of("unconditional"),
        probe=ledger.of(purpose="probe"),
        repair=ledger.of(purpose="repair"),
        audit=ledger.of(purpose="audit"),
        total=ledger.total,
        full_cfg_equivalent=job.full_cfg_equivalent,
        saved=ledger.saved(job.full_cfg_equivalent),
        skipped_by_eos=ledger.skipped_by_eos,
    )


def gate(prepared: Prepared, outcome: DecodingResult) -> wire.GateResult:
    """What the gate, or the fallback in its place, did."""
    job, decision = outcome.run, outcome.decision
    decided = decision_of(job, outcome.handoff_step)
    handed_off = decided == "handoff"
    masked = outcome.handoff_masked or 0
    tried = bool(prepared.job.attempts) and SOURCES[job.policy.gate.source].trained
    return wire.GateResult(
        source=job.policy.gate.source,
        version=job.gate.version if prepared.choice.gate or tried else None,
        decision=decided,
        predicted_horizon=decision.predicted_horizon if decision else None,
        handoff_step=outcome.handoff_step if handed_off else None,
        handoff_fraction=(outcome.handoff_step or 0) / job.steps if handed_off else None,
        committed_fraction=1.0 - masked / job.open_length if handed_off else None,
        handoff_fate=decision.handoff_fate if decision else None,
        fate_confidence=decision.fate_confidence if decision else None,
        fallback_reason=outcome.fallback_reason or (prepared.choice.fallback_reason if prepared.fallback else None),
        evidence=evidence(prepared, outcome),
        measured_loss=measured_loss(prepared, outcome),
        nearest_regime=dict(prepared.choice.nearest_regime) if prepared.choice.nearest_regime else None,
    )


def evidence(prepared: Prepared, outcome: DecodingResult) -> Evidence:
    """What is known of the gate that a sample had; of an attempt of `auto` its version tells."""
    if outcome.fallback_reason is not None:
        return "none"  # the gate failed, and decided nothing
    return evidence_of(outcome.run.gate.version) if prepared.job.attempts else prepared.choice.evidence


def measured_loss(prepared: Prepared, outcome: DecodingResult) -> wire.MeasuredLoss | None:
    """What the gate that a sample had was measured to lose; None where that is not known."""
    measured = prepared.choice.measured
    return None if measured is None or outcome.fallback_reason is not None else wire.MeasuredLoss(**asdict(measured))


def repair(prepared: Prepared, outcome: DecodingResult) -> wire.RepairResult | None:
    """What the verified loop did; None where nothing was judged."""
    kept, passes = outcome.kept, outcome.passes
    if kept is None:
        return None
    rounds = [attempted for attempted in passes if attempted.round]
    return wire.RepairResult(
        attempts=1 + passes[-1].attempt,
        rounds=len(rounds),
        reopened=sum(len(attempted.reopened) for attempted in rounds),
        recovered=kept.satisfied and not passes[0].satisfied,
        kept=next(index for index, attempted in enumerate(passes) if attempted is kept),
        passes=[_pass(attempted, outcome.job) for attempted in passes],
        anchor_reason=prepared.anchor_reason,
    )


def _pass(attempted: DecodedText, job: Job) -> wire.PassReply:
    policy = job.attempt(attempted.attempt).policy
    return wire.PassReply(
        attempt=attempted.attempt,
        round=attempted.round,
        preset=policy.preset,
        selector=policy.repair.selector if policy.repair is not None and attempted.round else None,
        reopened=list(attempted.reopened),
        text=attempted.text,
        satisfied=attempted.satisfied,
        score=attempted.score,
        forward_evaluations=attempted.rows,
    )


def policy(resolved: DecodingPolicy, gate: Gate | None = None) -> ResolvedPolicy:
    """The policy with the gate's defaults written out; of a `drained` one the threshold of the `gate` that was used."""
    fields = asdict(resolved)
    settled: Mapping[str, float | None] = gate_defaults(resolved.gate.source)
    if resolved.gate.source == "drained" and gate is not None:
        settled = (
            {"threshold": gate.threshold, "earliest": gate.earliest or None} if isinstance(gate, DrainedGate) else {}
        )
    fields["gate"] |= {name: value for name, value in settled.items() if fields["gate"][name] is None}
    return ResolvedPolicy(**fields)


def trace(outcome: DecodingResult, model: DenoisingModel) -> wire.TraceReply:
    """Every step with display strings, and the final canvas."""
    recorded, pieces = outcome.trace, model.codec.pieces
    return wire.TraceReply(
        start_step=recorded.start_step,
        resumed=[asdict(resumption) for resumption in recorded.resumed],
        steps=[{**stats.to_dict(), "pieces": pieces(list(stats.tokens))} for stats in recorded.steps],
        tokens=list(outcome.tokens),
        pieces=pieces(list(outcome.tokens)),
    )
