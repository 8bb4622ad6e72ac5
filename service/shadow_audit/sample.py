"""A chosen sample that has ended becomes an audit: its state at the handoff, its outcome, and its job as JSON.

Outcomes are those before any repair. A sample whose caller left after its handoff is an audit too: leaving it out would
let the callers' impatience choose the samples. Both of its continuations then run in the shadow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from decoding.constraints import parse
from decoding.engine.handle import Handle
from decoding.engine.rollouts import continuations
from decoding.gates.protocol import Decision, Gate, GateView
from decoding.models.protocol import DenoisingModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.records.trace import Trace
from decoding.request.canvas import CanvasState
from decoding.request.job import Anchor, Job, Sampling, regime_of
from decoding.request.template import TemplateCanvas
from decoding.sampling.noise import NoiseKey
from gate_models.features import vector as features
from gate_models.features.argmax_fill import TextReader
from gate_models.features.prefix import view_before
from service.backend.watched_gates import AuditedGate
from service.committor.horizons import subject_of
from service.shadow_audit.tables import AuditRecord, Served

LEFT: Final = ("cancelled", "deadline")
"""Ends of a sample that say nothing of its text."""


class SampleFailedError(RuntimeError):
    """The sample failed in the engine: it has no outcome, and a continuation would fail too."""


@dataclass(frozen=True, slots=True)
class ChosenSample:
    """A sample that was chosen at admission. `asked` is the gate that decides, in the shadow where `served` is full."""

    gate: AuditedGate
    asked: Gate
    served: Served
    request_id: str
    sample: int
    handle: Handle


@dataclass(frozen=True, slots=True)
class AuditCandidate:
    """An audit that is due. `served_ok` and `served_text` are None where the caller left before the text was done."""

    gate: AuditedGate
    served: Served
    request_id: str
    sample: int
    prompt: str
    step: int
    served_ok: bool | None
    served_text: str | None
    recipe: dict[str, Any]
    decision: dict[str, Any] | None
    features: dict[str, Any] | None


def case_of(chosen: ChosenSample, model: DenoisingModel, reader: TextReader) -> AuditCandidate | None:
    """The audit of a sample that has ended; None where it was not handed off. Judges its text, asks its gate.

    Raises `SampleFailedError`.
    """
    handle = chosen.handle
    state, finished = _first_pass(handle)
    step, decision = _handoff(chosen, state, model.spec.hash)
    if step is None:
        return None
    job, trace = handle.job, state.trace
    text = job.text(model.codec, state.content()) if finished else None
    canvas = trace.prefix(step, model.spec.mask_id)
    place = trace.place(step) or state.schedule.place
    return AuditCandidate(
        gate=chosen.gate,
        served=chosen.served,
        request_id=chosen.request_id,
        sample=chosen.sample,
        prompt=subject_of(job),
        step=step,
        served_ok=None if text is None else satisfied(job.constraint, text),
        served_text=text,
        recipe=recipe_of(job) | {"canvas": canvas.tolist(), "place": list(place)},
        decision=None if decision is None else asdict(decision),
        features=_features(job, trace, step, model, reader) if chosen.asked.needs_stats else None,
    )


def decided(chosen: ChosenSample) -> bool:
    """Whether a sample without handoff lived to its end, so that its gate has said no."""
    return _first_pass(chosen.handle)[1]


def first_pass_ended(handle: Handle) -> bool:
    """Whether a request's first text, that before any repair, is there or never will be."""
    return handle.done or (handle.repair_loop is not None and bool(handle.repair_loop.passes))


def satisfied(constraint: Mapping[str, object] | None, text: str) -> bool:
    """The verdict on a text. Only requests with a constraint have a family, and so a gate."""
    if constraint is None:
        raise ValueError("an audit needs a constraint")
    return parse(dict(constraint)).evaluate(text).satisfied


def _first_pass(handle: Handle) -> tuple[CanvasState, bool]:
    """The run before any repair, and whether it came to its end."""
    if handle.repair_loop is not None and handle.repair_loop.passes:
        return handle.repair_loop.passes[0].state, True
    if handle.error is not None and handle.error.reason not in LEFT:
        raise SampleFailedError(str(handle.error))
    return handle.state, handle.error is None


def _handoff(chosen: ChosenSample, state: CanvasState, model_hash: str) -> tuple[int | None, Decision | None]:
    """The step before which guidance ended, or would have ended."""
    if chosen.served == "handoff":
        return state.handoff_step, state.decision
    return would_hand_off(chosen.asked, chosen.handle.job, state.trace, model_hash)


def would_hand_off(gate: Gate, job: Job, trace: Trace, model_hash: str) -> tuple[int | None, Decision | None]:
    """The step before which `gate` ends guidance on a run that kept it, asked as the engine asks: before each of its
    checkpoints, of the steps until then.
    """
    checkpoints = gate.checkpoints(job.steps)
    decision = None
    for step in range(len(trace.steps)) if checkpoints is None else sorted(checkpoints):
        if step >= len(trace.steps):
            break
        (decision,) = gate.decide([_view(job, trace, step, model_hash)])
        if decision.handoff:
            return step, decision
    return None, decision


def _view(job: Job, trace: Trace, step: int, model_hash: str) -> GateView:
    regime = regime_of(job, model_hash)
    return view_before(step, trace.steps, regime, len(job.prompt_ids), job.constraint or {})


def _features(job: Job, trace: Trace, step: int, model: DenoisingModel, reader: TextReader) -> dict[str, Any]:
    vector = features.vector(_view(job, trace, step, model.spec.hash), reader)
    values = {name: float(value) for name, value in zip(features.NAMES, vector, strict=True)}
    return {"schema": features.SCHEMA, "values": values}


# -- the job in the database -----------------------------------------------------------------------------------------


def recipe_of(job: Job) -> dict[str, Any]:
    """What rebuilds `job` in another process, as JSON; without repair, which no continuation has."""
    policy = asdict(replace(job.policy, repair=None, budget_rows=None))
    noise = {"seed": job.noise.seed, "purpose": job.noise.purpose, "arm": job.noise.arm}
    names = ("prompt_ids", "negative_ids", "gen_length", "steps", "block_length", "family", "constraint")
    return {name: getattr(job, name) for name in names} | {
        "policy": policy,
        "sampling": asdict(job.sampling),
        "noise": noise,
        **({} if job.template is None else {"template": asdict(job.template)}),
    }


def job_of(recipe: Mapping[str, Any]) -> Job:
    """The job of `recipe_of`. Raises `KeyError`, `TypeError` or `ValueError` where it was written otherwise."""
    policy = recipe["policy"]
    return Job(
        prompt_ids=tuple(recipe["prompt_ids"]),
        negative_ids=None if recipe.get("negative_ids") is None else tuple(recipe["negative_ids"]),
        gen_length=recipe["gen_length"],
        steps=recipe["steps"],
        policy=DecodingPolicy(**{**policy, "gate": GateSettings(**policy["gate"])}),
        noise=NoiseKey(**recipe["noise"]),
        sampling=Sampling(**recipe["sampling"]),
        block_length=recipe["block_length"],
        family=recipe["family"],
        constraint=recipe["constraint"],
        template=_template(recipe.get("template")),
    )


def _template(recorded: Mapping[str, Any] | None) -> TemplateCanvas | None:
    if recorded is None:
        return None
    spans = tuple((start, stop) for start, stop in recorded["spans"])
    return TemplateCanvas(tuple(recorded["literals"]), tuple(recorded["ids"]), spans)


def shadow_jobs(audit: AuditRecord) -> dict[Served, Job]:
    """The continuations that are still to run, at background priority, by which of the two they are.

    The shadow draws separate noise. A text that the caller left goes on with the noise that it would have had.
    """
    recipe = audit.recipe
    if recipe is None:
        raise ValueError(f"audit {audit.id} has been forgotten and cannot be run")
    job, anchor = job_of(recipe), Anchor(tuple(recipe["canvas"]), audit.step, tuple(recipe["place"]))
    known: dict[Served, bool | None] = {"handoff": audit.handoff_ok, "full": audit.full_ok}
    jobs: dict[Served, Job] = {}
    for side, verdict in known.items():
        if verdict is None:
            arm = f"{audit.request_id}/{audit.sample}|{side}"
            (continuation,) = continuations(job, anchor, guided=side == "full", count=1, arm=arm, purpose="audit")
            jobs[side] = replace(continuation, noise=job.noise) if side == audit.served else continuation
    return jobs
