"""A job is checked once, where it enters the engine; messages say what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable

from decoding.models.protocol import ModelSpec
from decoding.policy.checks import PolicyError
from decoding.policy.decoding_policy import MAX_TEMPERATURE, DecodingPolicy
from decoding.request.job import Job
from decoding.request.template import TemplateCanvas
from decoding.sampling.block_schedule import check_blocks
from decoding.sampling.commit_order import CONFIDENCE_KINDS
from decoding.sampling.stability import NO_TAIL
from decoding.sampling.tail_rule import ATTENDING

MAX_STEPS = 4096


class JobError(ValueError):
    """A job that cannot be decoded; `param` names the field at fault."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def check_job(job: Job, spec: ModelSpec, *, invariant: bool = False, canvas_field: str = "gen_length") -> None:
    """Raise `JobError` unless `job` can be decoded by the model of `spec`, in invariant mode where `invariant`.

    Errors call the canvas length `canvas_field`.
    """
    check_shape(job.gen_length, job.steps, job.block_length, spec, canvas_field)
    for name, ids in (("prompt", job.prompt_ids), ("negative_prompt", job.negative_ids or ())):
        if len(ids) > spec.max_prompt:
            raise JobError(name, f"has {len(ids)} tokens; model {spec.name} takes at most {spec.max_prompt}")
        if any(not 0 <= i < spec.vocab_size for i in ids):
            raise JobError(name, "holds a token id outside the vocabulary")
    policies = (job.policy, *(attempt.policy for attempt in job.attempts))
    if job.template is None:  # of a template the seed may have drawn fewer positions than a width
        _check_widths(job, policies, canvas_field)
    if job.policy.tail_reuse is not None:
        _check_reuse(job, spec, invariant=invariant)
    for policy in policies:
        if policy.tail_rule in ATTENDING:
            _check_attention(policy, spec)
    _check_sampling(job)
    if job.template is not None:
        _check_template(job, job.template, spec)
    _check_start(job, spec)
    if job.judged:
        _check_judged(job)


def check_shape(
    gen_length: int, steps: int, block_length: int | None, spec: ModelSpec, canvas_field: str = "gen_length"
) -> None:
    """Raise `JobError` unless a canvas of this shape can be decoded: nothing can be planned on another one."""
    if not 1 <= gen_length <= spec.max_canvas:
        raise JobError(canvas_field, f"must be from 1 to {spec.max_canvas} for model {spec.name}")
    if not 1 <= steps <= MAX_STEPS:
        raise JobError("steps", f"must be from 1 to {MAX_STEPS}")
    try:
        check_blocks(gen_length, steps, block_length, canvas_field)
    except ValueError as error:
        raise JobError("block_length", str(error)) from None


def _check_judged(job: Job) -> None:
    if job.predicate is None:
        raise JobError(
            "policy.preset" if job.attempts else "policy.repair", "needs a constraint: it goes on until one holds"
        )
    budget, rows = job.policy.budget_rows, [job.attempt(index).first_pass_rows for index in range(job.attempt_count)]
    if budget is not None and budget < rows[0]:
        raise JobError("policy.budget_rows", f"must be at least {min(rows)}, what the first pass may take")


def _check_attention(policy: DecodingPolicy, spec: ModelSpec) -> None:
    if not spec.gives_attention:
        raise JobError(
            "policy.tail_rule",
            f"'{policy.tail_rule}' looks at the model's attention, which model {spec.name} does not give; take another",
        )


def _check_reuse(job: Job, spec: ModelSpec, *, invariant: bool) -> None:
    if not spec.reuses_key_values:
        raise JobError("policy.tail_reuse", f"is not supported by model {spec.name}; leave it out")
    if invariant:
        raise JobError("policy.tail_reuse", "is approximate and not available in batch-invariant mode; leave it out")
    if job.record != "commits":
        raise JobError(
            "policy.tail_reuse",
            "cannot be combined with a trace or a gate that reads statistics of every step: outside the active block "
            "there are none; leave one of them out",
        )


def _check_sampling(job: Job) -> None:
    sampling = job.sampling
    if not (math.isfinite(sampling.temperature) and 0.0 <= sampling.temperature <= MAX_TEMPERATURE):
        raise JobError("temperature", f"must be from 0 to {MAX_TEMPERATURE:g}")
    if not (math.isfinite(sampling.top_p) and 0.0 < sampling.top_p <= 1.0):
        raise JobError("top_p", "must be above 0 and at most 1")
    if sampling.confidence not in CONFIDENCE_KINDS:
        raise JobError("confidence", f"must be one of: {', '.join(CONFIDENCE_KINDS)}")
    for name in ("eos_fill", "defer_eos"):
        if sampling.suppress_eos and getattr(sampling, name):
            raise JobError(name, "has no effect with suppress_eos; choose one")


def _check_widths(job: Job, policies: Iterable[DecodingPolicy], canvas_field: str) -> None:
    for policy in policies:
        try:
            policy.check_canvas(job.gen_length, canvas_field)
        except PolicyError as error:
            raise JobError(f"policy.{error.param}", str(error)) from None


def _check_template(job: Job, template: TemplateCanvas, spec: ModelSpec) -> None:
    if len(template.ids) != job.gen_length:
        raise JobError("template", f"has {len(template.ids)} tokens, gen_length is {job.gen_length}")
    if job.block_length is not None:
        raise JobError("block_length", "is not used with a template, whose blanks are decoded together; leave it out")
    if not job.sampling.suppress_eos:
        raise JobError("suppress_eos", "must be true with a template: no blank ends the text")
    masked = {position for position, token in enumerate(template.ids) if token == spec.mask_id}
    if masked != set(template.open):
        raise JobError("template", "must hold MASK in its blanks, and nowhere else")


def _check_start(job: Job, spec: ModelSpec) -> None:
    if job.fill_step is not None and not job.start_step <= job.fill_step < job.steps:
        raise JobError("fill_step", f"must be from start_step ({job.start_step}) to steps - 1 ({job.steps - 1})")
    if job.start is None:
        if job.start_step or job.start_place is not None or job.start_tail != NO_TAIL:
            raise JobError("start_step", "needs a start canvas")
        return
    if len(job.start) != job.gen_length:
        raise JobError("start", f"has {len(job.start)} tokens, gen_length is {job.gen_length}")
    if any(not 0 <= i < spec.vocab_size for i in job.start):
        raise JobError("start", "holds a token id outside the vocabulary")
    mending = len(job.start_tail.opened) and (job.policy.tail_mend or 0)
    if not 0 <= job.start_step <= job.steps + mending:
        raise JobError("start_step", f"must be from 0 to steps ({job.steps})")
    masks = sum(i == spec.mask_id for i in job.start)
    if masks and job.start_step == job.steps:
        raise JobError("start_step", f"leaves no step for the {masks} masked positions")
