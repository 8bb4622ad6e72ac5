"""A request becomes a decoding job, without its gate: /generate, /committor and the OpenAI routes all pass here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from decoding.constraints import FAMILIES, Constraint, parse
from decoding.constraints.registry import FAMILY_NAME
from decoding.models.generation import GenerationConfig
from decoding.models.protocol import DenoisingModel, ModelSpec
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.model_defaults import policy_defaults
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job, Sampling
from decoding.request.row_estimates import most_rows, selection_rows
from decoding.request.template import TemplateCanvas
from decoding.request.validation import check_job, check_shape
from decoding.sampling.noise import NoiseKey
from service.config.settings import Settings
from service.generation.canvas import Canvas, fitting_canvas
from service.generation.repair_anchor import repair_of
from service.generation.request import CanvasRequest
from service.generation.template import template_canvas
from service.http.errors import ApiError, invalid
from service.schemas.base import MAX_SEED, MAX_TRACE_STEPS
from service.schemas.policy import PolicyRequest


def job_of(request: CanvasRequest, model: DenoisingModel, settings: Settings) -> Job:
    """The job of the request's first sample, without a gate; sample i differs in its seed, which is i higher.

    Raises `ApiError`, `PolicyError`, `ConstraintError` or `JobError`, each naming the field at fault.
    Tokenizes: keep it off the event loop.
    """
    constraint = None if request.constraint is None else parse(request.constraint)
    family = _family(request.family, constraint)
    canvas, template = _canvas(request, constraint, model)
    _check_size(request, canvas.gen_length, settings)
    check_shape(canvas.gen_length, canvas.steps, canvas.block_length, model.spec, request.names.gen_length)
    generation = _defaults(request.policy, model.spec.generation)
    open_length = canvas.gen_length if template is None else len(template.open)
    policy = policy_of(
        request,
        model.spec.generation,
        open_length,
        request.names.gen_length if template is None else "the number of blank tokens",
    )
    return Job(
        noise=NoiseKey(_seed(request)),
        prompt_ids=_prompt_ids(request, constraint, model),
        negative_ids=_negative_ids(request, model),
        gen_length=canvas.gen_length,
        steps=canvas.steps,
        policy=policy,
        sampling=Sampling(
            temperature=generation.temperature if request.temperature is None else request.temperature,
            top_p=generation.top_p if request.top_p is None else request.top_p,
            confidence=request.confidence or "probability",
            eos_fill=request.eos_fill,
            suppress_eos=request.suppress_eos or template is not None,
            defer_eos=canvas.defer_eos,
        ),
        block_length=canvas.block_length,
        template=template,
        family=family,
        constraint=None if constraint is None else constraint.to_spec(),
        predicate=constraint,
        deadline=deadline_of(request.deadline_s, request.arrived, settings),
    )


def policy_of(
    request: CanvasRequest, generation: GenerationConfig, gen_length: int | None, canvas_field: str = ""
) -> DecodingPolicy:
    """The policy that is asked for, of a model with the defaults `generation`, on `gen_length` open positions.

    Errors call these `canvas_field`, or as the request does.

    Raises `PolicyError`, or `ApiError` for what the client set and nothing reads.
    """
    policy = resolve_policy(
        None if request.policy is None else request.policy.preset,
        _given(request.policy),
        defaults=policy_defaults(_defaults(request.policy, generation).policy),
        gen_length=gen_length,
        canvas_field=canvas_field or request.names.gen_length,
    )
    _check_used(request, policy)
    return policy


def _canvas(
    request: CanvasRequest, constraint: Constraint | None, model: DenoisingModel
) -> tuple[Canvas, TemplateCanvas | None]:
    if request.template is not None:
        return template_canvas(request, constraint, model)
    return fitting_canvas(request, constraint, model.codec, model.spec), None


def check_request(
    job: Job, request: CanvasRequest, spec: ModelSpec, settings: Settings, *, trace: bool = False
) -> None:
    """Raise `JobError` unless `job`, which has its gate, can be decoded, and `ApiError` where it asks for too much."""
    check_job(job, spec, invariant=settings.batch_invariant, canvas_field=request.names.gen_length)
    _check_work(job, request.samples, settings, trace=trace)


def _family(named: str | None, constraint: Constraint | None) -> str | None:
    """The named family: the client's own or the constraint's, as gates are never borrowed from another benchmark."""
    family = None if constraint is None else constraint.family
    if named is None or named == family:
        return family
    if not FAMILY_NAME.fullmatch(named):
        raise invalid("family", "must have 1 to 64 letters, digits, dots, hyphens and underscores, no mark first")
    if named in FAMILIES:
        belongs = f"this constraint's is '{family}'" if family else "this request belongs to none"
        raise invalid("family", f"must be a name of your own, left out, or the constraint's own; {belongs}")
    return named


def _check_size(request: CanvasRequest, gen_length: int, settings: Settings) -> None:
    samples, name = request.samples, request.names.gen_length
    if samples > settings.max_samples:
        raise invalid("n", f"must be at most {settings.max_samples} on this server")
    if samples * gen_length > settings.max_request_tokens:
        fitting = max(1, settings.max_request_tokens // gen_length)
        raise invalid(
            "n",
            f"is too large: n * {name} is {samples * gen_length}, this server takes at most "
            f"{settings.max_request_tokens} (n = {fitting} at this {name})",
        )


def _defaults(policy: PolicyRequest | None, generation: GenerationConfig) -> GenerationConfig:
    """Where open fields come from: the model, or the paper's plain guidance where the client asks for that."""
    paper = policy is not None and policy.defaults == "paper"
    return GenerationConfig() if paper else generation


def _given(policy: PolicyRequest | None) -> dict[str, Any]:
    """The policy fields that the client set."""
    if policy is None:
        return {}
    given = policy.model_dump(exclude_none=True, exclude={"preset", "defaults", "gate", "repair"})
    if policy.gate is not None:
        given["gate"] = GateSettings(**policy.gate.model_dump(exclude_none=True))
    if policy.repair is not None:
        given["repair"] = repair_of(policy.repair)
    return given


def _check_used(request: CanvasRequest, policy: DecodingPolicy) -> None:
    """Refuse what the client set and nothing reads."""
    if policy.guidance_scale == 0.0 and policy.preset != "base":
        raise invalid(
            "policy.guidance_scale", f"is 0, so preset '{policy.preset}' would guide nothing; use preset 'base'"
        )
    if request.render_constraint is not None and request.constraint is None:
        raise invalid("render_constraint", "is not used without a constraint; leave it out")
    if request.confidence is not None and policy.order == "random":
        raise invalid("confidence", "is not used with policy.order 'random'; leave it out")
    if request.negative_prompt is not None and policy.preset == "base":
        raise invalid("negative_prompt", "is not used by preset 'base', which never guides; leave it out")
    if request.negative_prompt is not None and not request.negative_prompt.strip():
        raise invalid("negative_prompt", "is empty; leave it out to guide away from the masked prompt")


def _seed(request: CanvasRequest) -> int:
    """The first sample's seed; drawn where the client set none."""
    seed = secrets.randbelow(2**32) if request.seed is None else request.seed
    if seed + request.samples - 1 > MAX_SEED:
        raise invalid("seed", f"must leave room for n samples: seed + n - 1 may be at most {MAX_SEED}")
    return seed


def check_prompt(request: CanvasRequest, constraint: Constraint | None) -> list[str]:
    """The parts of what the model is asked for: the prompt, the constraint's instruction. There must be one."""
    parts = [request.prompt] if request.prompt.strip() else []
    if constraint is not None and request.render_constraint is not False:
        parts.append(constraint.instruction())
    if not parts:
        hint = "set render_constraint to true, or" if constraint is not None else "give a constraint, or"
        raise invalid(request.names.prompt, f"is empty; {hint} say what to write")
    return parts


def _prompt_ids(request: CanvasRequest, constraint: Constraint | None, model: DenoisingModel) -> tuple[int, ...]:
    """Ids of the prompt and the constraint's instruction, in the model's template."""
    name = request.names.prompt
    parts = check_prompt(request, constraint)
    return _encoded(name, " ".join(parts), request.history, model)


def _negative_ids(request: CanvasRequest, model: DenoisingModel) -> tuple[int, ...] | None:
    """Ids of the negative prompt, in the model's template."""
    text = request.negative_prompt
    return None if text is None else _encoded("negative_prompt", text, None, model)


def _encoded(name: str, text: str, history: Sequence[tuple[str, str]] | None, model: DenoisingModel) -> tuple[int, ...]:
    """Ids of a prompt after `history`; errors call it `name`."""
    spec = model.spec
    try:
        "".join([text, *(content for _, content in history or ())]).encode()
        ids = (
            model.codec.encode_prompt(text) if history is None else model.codec.encode_chat([*history, ("user", text)])
        )
    except UnicodeEncodeError:  # JSON can hold a lone surrogate
        raise invalid(name, "is not valid Unicode text") from None
    except ValueError as error:
        raise invalid(name, f"cannot be encoded: {error}") from None
    if len(ids) > spec.max_prompt:
        raise invalid(name, f"has {len(ids)} tokens; model {spec.name} takes at most {spec.max_prompt}")
    return tuple(ids)


def check_model(named: str | None, spec: ModelSpec) -> None:
    """Raise a 404 `ApiError` where a request names another model than the one that is served."""
    if named is not None and named not in (spec.name, spec.hash):
        message = f"this server does not serve that model; it serves '{spec.name}'"
        raise ApiError(404, message, code="model_not_found", param="model")


def deadline_of(seconds: float | None, arrived: float | None, settings: Settings) -> float | None:
    """`time.monotonic()` value at which a request fails that arrived at `arrived` (None: now)."""
    if seconds is not None and seconds > settings.max_deadline:
        raise invalid("deadline_s", f"must be at most {settings.max_deadline:g} on this server")
    seconds = settings.default_deadline if seconds is None else seconds
    return None if seconds is None else (time.monotonic() if arrived is None else arrived) + seconds


def _check_work(job: Job, samples: int, settings: Settings, *, trace: bool) -> None:
    """Bound the rows of all samples together, and the steps of their traces."""
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


def _too_large(estimate: str, samples: int, fitting: int) -> ApiError:
    """A 422 for a request that `fitting` samples would fit; where not even one does, its steps are at fault."""
    if fitting == 0:
        return invalid("steps", f"is too large: the request asks for {estimate}", "too_large")
    return invalid("n", f"is too large: {samples} samples ask for {estimate} (n = {fitting} as it stands)", "too_large")
