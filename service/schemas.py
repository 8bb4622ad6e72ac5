"""The wire types: the one home of what requests and responses look like.

Policy fields take their docs, choices and limits from `decoding.policy`, constraints from `decoding.constraints`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from decoding import policy as policies
from decoding.constraints import FAMILIES, catalogue
from decoding.job import Sampling
from decoding.models.protocol import ReuseMode
from decoding.order import CONFIDENCE_KINDS, GUIDED_ORDERS
from decoding.policy import MAX_GUIDANCE_SCALE, GateSource, OnFallback, Preset
from decoding.validation import MAX_STEPS, MAX_TEMPERATURE
from service.errors import LATER
from service.fielddocs import field_docs

MAX_PROMPT_CHARACTERS = 100_000
MAX_CANVAS = 65_536
MAX_TRACE_STEPS = 4096
MAX_SEED = 2**53 - 1
"""Largest whole number that every JSON reader keeps exact."""

_POLICY = field_docs(policies.DecodingPolicy)
_GATE = field_docs(policies.Gate)
_SAMPLING = field_docs(Sampling)


def _constraint_schema() -> dict[str, Any]:
    kinds = [
        {"title": entry["type"], "description": entry["description"], **entry["schema"], "examples": [entry["example"]]}
        for entry in catalogue()
    ]
    return {"oneOf": kinds, "description": "What the text must satisfy; GET /v1/constraints describes every type."}


def _choices(*names: str) -> dict[str, Any]:
    return {"enum": list(names)}


ConstraintObject = Annotated[dict[str, Any], WithJsonSchema(_constraint_schema())]


class Request(BaseModel):
    """Unknown fields, wrong types (true is no number, 1.0 no whole number), NaN and infinity are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class GateRequest(Request):
    """What picks the handoff step. Each source takes its own settings (GET /v1/policies lists them), no others."""

    source: GateSource | None = Field(None, description="'policy' (the learned gate) where left out.")
    fraction: float | None = Field(None, ge=0, le=1, description=_GATE["fraction"])
    margin: float | None = Field(None, ge=0, le=1, description=_GATE["margin"])
    confidence: float | None = Field(None, ge=0, le=1, description=_GATE["confidence"])
    row_price: float | None = Field(None, ge=0, le=1, description=_GATE["row_price"])
    threshold: float | None = Field(None, ge=0, le=1, description=_GATE["threshold"])


class PolicyRequest(Request):
    """How guidance is spent. A field that is left out (or null) takes the preset's value; an unused one is refused."""

    preset: Preset | None = Field(None, description="A shorthand for a combination; 'handoff' where left out.")
    guidance_scale: float | None = Field(None, ge=0, le=MAX_GUIDANCE_SCALE)
    """w in c + w(c - u), LLaDA's cfg_scale; Dream's u + g(c - u) is g = w + 1. 0 is the base decoder."""
    guided_width: int | None = Field(None, ge=1, le=MAX_CANVAS, description=_POLICY["guided_width"])
    order: str | None = Field(
        None,
        description=_POLICY["order"],
        json_schema_extra={"anyOf": [_choices("confidence", "random", *GUIDED_ORDERS), {"type": "null"}]},
    )
    gate: GateRequest | None = None
    tail_width: int | None = Field(None, ge=1, le=MAX_CANVAS, description=_POLICY["tail_width"])
    tail_threshold: float | None = Field(None, ge=0, le=1, description=_POLICY["tail_threshold"])
    tail_reuse: ReuseMode | None = Field(None, description=_POLICY["tail_reuse"])
    tail_refresh: int | None = Field(None, ge=1, le=MAX_STEPS, description=_POLICY["tail_refresh"])
    on_fallback: OnFallback | None = None
    """What a request gets that no gate serves: full guidance, none, or a 422."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty_later_fields(cls, data: Any) -> Any:
        """A null field that a later version will know asks for nothing."""
        if not isinstance(data, dict):
            return data
        later = {name.removeprefix("policy.") for name in LATER}
        return {name: value for name, value in data.items() if not (name in later and value is None)}


class GenerateRequest(Request):
    """One or more texts (samples) from a prompt, a constraint, or both."""

    prompt: str = Field("", max_length=MAX_PROMPT_CHARACTERS)
    """May be empty where a constraint is given and rendered."""
    constraint: ConstraintObject | None = None
    family: str | None = Field(None, json_schema_extra={"anyOf": [_choices(*FAMILIES), {"type": "null"}]})
    """Family whose gates decide; derived from the constraint. A named one must be the constraint's own."""
    render_constraint: bool = True
    """Append the constraint's instruction to the prompt; false where the prompt says it already. Needs a constraint."""
    policy: PolicyRequest | None = None
    gen_length: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Canvas length L in tokens; by default the model's, longer where the constraint needs more."""
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    """Denoising steps T; by default gen_length."""
    block_length: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Semi-autoregressive block; must divide gen_length. By default the model's."""
    temperature: float = Field(1.0, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1)
    """Nucleus; null is 1, the whole distribution."""
    confidence: str = Field("probability", json_schema_extra=_choices(*CONFIDENCE_KINDS))
    """What ranks candidates for commitment; left out with policy.order 'random', which ranks by noise."""
    eos_fill: bool = Field(False, description=_SAMPLING["eos_fill"])
    suppress_eos: bool = Field(False, description=_SAMPLING["suppress_eos"])
    defer_eos: bool | None = Field(None, description=_SAMPLING["defer_eos"] + " By default where the model needs it.")
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    """Sample i is decoded with seed + i; null draws one. The seeds used are in the response."""
    n: int = Field(1, ge=1, le=MAX_CANVAS)
    """Samples; GET /v1/models has this server's limits on n, on n * gen_length and on estimated rows."""
    stream: bool = False
    """Server-sent events instead of one JSON object."""
    trace: bool = Field(False, description=f"Return every denoising step; n * steps of at most {MAX_TRACE_STEPS}.")
    deadline_s: float | None = Field(None, gt=0)
    """Seconds after which the request fails."""


class Reply(BaseModel):
    """Base of everything that the server sends."""

    model_config = ConfigDict(use_attribute_docstrings=True, protected_namespaces=())


class GateSettings(Reply):
    source: GateSource
    fraction: float | None = None
    margin: float | None = None
    confidence: float | None = None
    row_price: float | None = None
    threshold: float | None = None


class ResolvedPolicy(Reply):
    """The policy with every field filled in."""

    preset: Preset
    guidance_scale: float
    guided_width: int
    order: str
    gate: GateSettings
    tail_width: int
    tail_threshold: float | None
    tail_reuse: ReuseMode | None
    tail_refresh: int
    on_fallback: OnFallback


class CheckResult(Reply):
    """One named part of a constraint."""

    name: str
    satisfied: bool
    score: float
    detail: str


class ForwardEvaluations(Reply):
    """Rows through the model. conditional + unconditional = total; probe, repair and audit are shares of that total."""

    conditional: int
    unconditional: int
    probe: int
    repair: int
    audit: int
    total: int
    full_cfg_equivalent: int
    """Rows of full CFG with as many serial steps: 2T."""
    saved: int
    """full_cfg_equivalent - total - skipped_by_eos; negative where the policy cost more."""
    skipped_by_eos: int
    """Rows not run because an end-of-text filled the rest; no part of saved."""


class GateResult(Reply):
    source: GateSource
    version: str | None
    """Null where no gate served the request."""
    decision: Literal["handoff", "full_cfg", "base"]
    """What happened: guidance ended at handoff_step, lasted to the end, or was never on."""
    predicted_horizon: float | None
    handoff_step: int | None
    handoff_fraction: float | None
    """handoff_step / T."""
    committed_fraction: float | None
    """Share of the canvas that was committed at the handoff."""
    handoff_fate: str | None
    fate_confidence: float | None
    fallback_reason: str | None
    """Why on_fallback decided in place of a gate."""
    nearest_regime: dict[str, Any] | None
    """The nearest setting that a gate was audited in."""


class RepairResult(Reply):
    rounds: int
    reopened: int
    recovered: bool


class TraceReply(Reply):
    """The run of one sample: each step's StepStats, with `pieces`, one display string a token."""

    start_step: int
    steps: list[dict[str, Any]]
    tokens: list[int]
    pieces: list[str]


class Sample(Reply):
    index: int
    seed: int
    text: str
    approximate: bool
    """Whether steps reused keys and values (policy.tail_reuse): exact decoding may give another text."""
    finish_reason: Literal["stop", "length"]
    """'stop' where the text ends in the canvas, 'length' where it fills it."""
    satisfied: bool | None
    """Whether the constraint holds; null without one."""
    score: float | None
    checks: list[CheckResult]
    forward_evaluations: ForwardEvaluations
    gate: GateResult
    repair: RepairResult | None = None
    trace: TraceReply | None = None


class Usage(Reply):
    prompt_tokens: int
    completion_tokens: int
    forward_evaluations: int


class GenerateResponse(Reply):
    """The samples in order, and what was decided for all of them."""

    id: str
    model: str
    model_hash: str
    created: int
    """Unix time, seconds."""
    family: str | None
    gen_length: int
    steps: int
    block_length: int | None
    defer_eos: bool
    policy: ResolvedPolicy
    samples: list[Sample]
    usage: Usage


class StepEventReply(Reply):
    """Event `step`: one denoising step of one sample."""

    index: int
    step: int
    phase: Literal["guided", "base"]
    positions: list[int]
    tokens: list[int]
    pieces: list[str]
    confidence: list[float]
    filled: list[int]


class HandoffEvent(Reply):
    """Event `handoff`: guidance of one sample ended before `step`."""

    index: int
    step: int
    fraction: float
    committed_fraction: float


class ErrorDetail(Reply):
    message: str
    type: str
    param: str | None
    """Dotted path of the field at fault, such as policy.gate.fraction or constraint.keywords[1]."""
    code: str


class ErrorReply(Reply):
    """The body of every answer other than success."""

    error: ErrorDetail
