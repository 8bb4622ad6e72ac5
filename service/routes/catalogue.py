"""GET /v1/models, /v1/constraints, /v1/policies: what this server knows."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field

from decoding import constraints
from decoding.constraints.general.predicates import installed
from decoding.policy.decoding_policy import PRESETS
from decoding.policy.gate import GATE_FIELDS, GATE_SOURCES, gate_defaults
from decoding.policy.model_defaults import policy_defaults
from decoding.policy.presets import resolve_policy
from decoding.policy.repair import SELECTORS
from decoding.sampling.commit_order import CONFIDENCE_KINDS, order_names
from decoding.sampling.tail_rule import tail_rules
from gate_models.gates.sources import SOURCES
from service.generation import replies
from service.http.errors import ApiError
from service.routes import examples
from service.routes.common import ServiceDep
from service.schemas.base import Reply
from service.schemas.policy import ResolvedPolicy

router = APIRouter(prefix="/v1", tags=["catalogue"])
_SUMMARIES = {
    "base": "No guidance: T forward evaluations.",
    "full_cfg": "Guidance in every step: 2T forward evaluations.",
    "handoff": "Guidance until the gate ends it, then one token a step as scheduled.",
    "parallel_tail": "Guidance until the gate ends it, then tail_width tokens a step.",
    "reopen_repair": "As handoff; positions of a text that fails its constraint are reopened under guidance.",
    "auto": "Attempts from cheap to dear, in the order that pays for the family, until the constraint holds or "
    "budget_rows is spent.",
}


class Limits(Reply):
    """Tokens, unless named otherwise."""

    max_prompt: int
    max_canvas: int
    max_samples: int
    max_request_tokens: int
    max_request_rows: int
    """Forward evaluations."""


class Defaults(Reply):
    """What a request gets that leaves a field open."""

    gen_length: int
    family_gen_length: dict[str, int]
    """Of families that need another canvas. A constraint that needs more room gets it."""
    block_length: int | None
    longest_block: int | None
    """A longer canvas is cut into blocks of at most this length, or end-of-text is deferred."""
    defer_eos: bool
    temperature: float
    top_p: float
    policy: ResolvedPolicy
    """Of a request without a policy."""


class Model(Reply):
    id: str
    object: Literal["model"] = "model"
    created: int
    """Unix time of the server's start, seconds."""
    owned_by: str = "astargate"
    hash: str
    architecture: str
    vocab_size: int
    device: str
    precision: str
    """Arithmetic of the weights: a dtype, or a quantization such as int8."""
    batch_invariant: bool
    tail_reuse: bool
    """Whether this server takes policy.tail_reuse."""
    limits: Limits
    defaults: Defaults


class ModelList(Reply):
    object: Literal["list"] = "list"
    data: list[Model]


class ConstraintType(Reply):
    type: str
    family: str | None
    """Family of the example."""
    families: list[str]
    """Families that a constraint of this type may belong to."""
    description: str
    json_schema: dict[str, Any] = Field(alias="schema")
    example: dict[str, Any]
    instruction: str
    """The example in English, as it is put into the prompt."""


class PredicateInfo(Reply):
    name: str
    description: str
    instruction: str
    """The predicate in English, as it is put into the prompt."""


class ConstraintList(Reply):
    object: Literal["list"] = "list"
    data: list[ConstraintType]
    families: list[str]
    predicates: list[PredicateInfo]
    """What the type `python` may name on this server."""


class GateSourceInfo(Reply):
    source: str
    fields: list[str]
    defaults: dict[str, float]
    learned: bool
    """Whether it needs a gate from /v1/gates for the request's family; without one, on_fallback decides."""


class PresetInfo(Reply):
    preset: str
    description: str
    policy: ResolvedPolicy


class PolicyList(Reply):
    object: Literal["list"] = "list"
    data: list[PresetInfo]
    gate_sources: list[GateSourceInfo]
    repair_selectors: list[str]
    orders: list[str]
    confidence_kinds: list[str]
    tail_rules: list[str]


@router.get("/models", responses=examples.errors(503), summary="The model and its limits")
async def models(service: ServiceDep) -> ModelList:
    """Name, hash, limits and defaults."""
    backend, settings = service.backend, service.settings
    spec = backend.model.spec
    defaults = spec.canvas_defaults(spec.default_canvas, spec.default_canvas)
    return ModelList(
        data=[
            Model(
                id=spec.name,
                created=service.created,
                hash=spec.hash,
                architecture=spec.architecture,
                vocab_size=spec.vocab_size,
                device=str(backend.model.device),
                precision=spec.precision,
                batch_invariant=settings.batch_invariant,
                tail_reuse=spec.reuses_key_values and not settings.batch_invariant,
                limits=Limits(
                    max_prompt=spec.max_prompt,
                    max_canvas=spec.max_canvas,
                    max_samples=settings.max_samples,
                    max_request_tokens=settings.max_request_tokens,
                    max_request_rows=settings.max_request_rows,
                ),
                defaults=Defaults(
                    gen_length=spec.default_canvas,
                    family_gen_length=dict(spec.family_canvas),
                    block_length=defaults.block_length,
                    longest_block=spec.default_block_length,
                    defer_eos=defaults.defer_eos,
                    temperature=spec.generation.temperature,
                    top_p=spec.generation.top_p,
                    policy=replies.policy(resolve_policy(None, {}, defaults=policy_defaults(spec.generation.policy))),
                ),
            )
        ]
    )


@router.get("/models/{name}", responses=examples.errors(404, 422, 503), summary="One model")
async def model(service: ServiceDep, name: str) -> Model:
    """The same entry as in the list, by name or hash."""
    (served,) = (await models(service)).data
    if name not in (served.id, served.hash):
        raise ApiError(404, f"this server serves '{served.id}'", code="model_not_found", param="name")
    return served


@router.get("/constraints", summary="Constraint types")
async def constraint_types() -> ConstraintList:
    """Every type with its JSON Schema, an example and the instruction that it is rendered as."""
    return ConstraintList(
        data=[ConstraintType.model_validate(entry) for entry in constraints.catalogue()],
        families=list(constraints.FAMILIES),
        predicates=[
            PredicateInfo(name=item.name, description=item.description, instruction=item.instruction)
            for item in installed().values()
        ],
    )


@router.get("/policies", summary="Policy presets and gate sources")
async def policies(service: ServiceDep) -> PolicyList:
    """Every preset with all its fields filled in as this model has them, and the settings of each gate source."""
    own = policy_defaults(service.backend.model.spec.generation.policy)
    return PolicyList(
        data=[
            PresetInfo(
                preset=name,
                description=_SUMMARIES[name],
                policy=replies.policy(resolve_policy(name, {}, defaults=own)),
            )
            for name in PRESETS
        ],
        gate_sources=[
            GateSourceInfo(
                source=source,
                fields=list(GATE_FIELDS[source]),
                defaults=gate_defaults(source),
                learned=SOURCES[source].learned,
            )
            for source in GATE_SOURCES
        ],
        repair_selectors=list(SELECTORS),
        orders=list(order_names()),
        confidence_kinds=list(CONFIDENCE_KINDS),
        tail_rules=list(tail_rules()),
    )
