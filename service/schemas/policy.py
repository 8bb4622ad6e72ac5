"""Wire types of a decoding policy, as asked for and as resolved.

Fields take their docs, choices and limits from `decoding.policy.decoding_policy`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from decoding.models.protocol import ReuseMode
from decoding.policy import gate as gate_policy
from decoding.policy.decoding_policy import (
    MAX_GUIDANCE_SCALE,
    MAX_MEND,
    MAX_TEMPERATURE,
    DecodingPolicy,
    OnFallback,
    Preset,
)
from decoding.policy.gate import GateSource
from decoding.policy.repair import END, MAX_ROLLOUTS, MAX_ROUNDS, Repair, Selector
from decoding.request.validation import MAX_STEPS
from decoding.sampling.block_schedule import TailSchedule
from decoding.sampling.commit_order import order_names
from decoding.sampling.tail_rule import tail_rules
from gate_models.policies.shorthand import MAX_NAME, gate_object, policy_object
from service.schemas.base import MAX_CANVAS, Reply, Request, choices, field_docs

_POLICY = field_docs(DecodingPolicy)
_GATE = field_docs(gate_policy.GateSettings)
_REPAIR = field_docs(Repair)
PEAK: Final = "peak"
_FRACTION: Final = {"type": "number", "minimum": 0, "maximum": 1}
_ANCHOR: Final = {"anyOf": [{"enum": [END, PEAK]}, _FRACTION, {"type": "null"}]}
"""Checked by `service.generation.repair_anchor`: a union of pydantic's would name its branches in every error."""
_ANCHORED: Final = {"anyOf": [{"enum": [END]}, _FRACTION]}
_PEAK_DOC: Final = (
    "Or 'peak': the step at which continuations without guidance succeed most, where you have measured the horizon of "
    "this prompt, constraint and setting (POST /committor); else the end, and repair.anchor_reason in the answer says "
    "why."
)


class GateRequest(Request):
    """What picks the handoff step. Each source takes its own settings (GET /v1/policies lists them), no others."""

    source: GateSource | None = Field(None, description="'policy' (the learned gate) where left out.")
    fraction: float | None = Field(None, ge=0, le=1, description=_GATE["fraction"])
    margin: float | None = Field(None, ge=0, le=1, description=_GATE["margin"])
    confidence: float | None = Field(None, ge=0, le=1, description=_GATE["confidence"])
    row_price: float | None = Field(None, ge=0, le=1, description=_GATE["row_price"])
    threshold: float | None = Field(None, ge=0, le=1, description=_GATE["threshold"])
    earliest: float | None = Field(None, ge=0, le=1, description=_GATE["earliest"])
    recheck: int | None = Field(None, ge=1, le=MAX_STEPS, description=_GATE["recheck"])


def _named_gate(given: Any) -> Any:
    return gate_object(given) if isinstance(given, str) else given


def _named_policy(given: Any) -> Any:
    return policy_object(given) if isinstance(given, str) else given


GateShorthand = Annotated[str, Field(examples=["drained", "value", "fraction:0.3"], max_length=MAX_NAME)]
"""A source's name, with a colon and its number where it takes one."""
GateField = Annotated[
    GateRequest | None, BeforeValidator(_named_gate, json_schema_input_type=GateRequest | GateShorthand | None)
]


class RepairRequest(Request):
    """How a text that fails its constraint is repaired; a field that is left out takes the default."""

    selector: Selector | None = Field(None, description=_REPAIR["selector"])
    reopen: int | None = Field(None, ge=1, le=MAX_CANVAS, description=_REPAIR["reopen"])
    max_rounds: int | None = Field(None, ge=0, le=MAX_ROUNDS, description=_REPAIR["max_rounds"])
    anchor: Annotated[Any, WithJsonSchema(_ANCHOR)] = Field(None, description=f"{_REPAIR['anchor']} {_PEAK_DOC}")
    rollouts: int | None = Field(None, ge=1, le=MAX_ROLLOUTS, description=_REPAIR["rollouts"])


class PolicyRequest(Request):
    """How guidance is spent. A field that is left out (or null) takes the model's or the preset's value.

    A field that the preset does not use is refused.
    """

    preset: Preset | None = Field(None, description="A shorthand for a combination; the model's where left out.")
    defaults: Literal["model", "paper"] | None = None
    """Where fields that are left out come from, temperature too: this server's defaults for the model (GET /v1/models),
    or the paper's plain guidance.
    """
    guidance_scale: float | None = Field(None, ge=0, le=MAX_GUIDANCE_SCALE)
    """w in c + w(c - u), LLaDA's cfg_scale; Dream's u + g(c - u) is g = w + 1. 0 is the base decoder."""
    guided_width: int | None = Field(None, ge=1, le=MAX_CANVAS, description=_POLICY["guided_width"])
    order: str | None = Field(
        None,
        description=_POLICY["order"],
        json_schema_extra={"anyOf": [choices(*order_names()), {"type": "null"}]},
    )
    plausibility: float | None = Field(None, ge=0, le=1, description=_POLICY["plausibility"])
    boost_threshold: float | None = Field(None, ge=0, le=1, description=_POLICY["boost_threshold"])
    gate: GateField = None
    """An object, or a source's name for one: 'value', 'fraction:0.3'."""
    tail_width: int | None = Field(None, ge=1, le=MAX_CANVAS, description=_POLICY["tail_width"])
    tail_rule: str | None = Field(
        None,
        description=_POLICY["tail_rule"],
        json_schema_extra={"anyOf": [choices(*tail_rules()), {"type": "null"}]},
    )
    tail_schedule: TailSchedule | None = Field(None, description=_POLICY["tail_schedule"])
    tail_mend: int | None = Field(None, ge=2, le=MAX_MEND, description=_POLICY["tail_mend"])
    tail_temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE, description=_POLICY["tail_temperature"])
    tail_threshold: float | None = Field(None, ge=0, le=1, description=_POLICY["tail_threshold"])
    tail_reuse: ReuseMode | None = Field(None, description=_POLICY["tail_reuse"])
    tail_refresh: int | None = Field(None, ge=1, le=MAX_STEPS, description=_POLICY["tail_refresh"])
    on_fallback: OnFallback | None = Field(None, description=_POLICY["on_fallback"])
    repair: RepairRequest | None = Field(None, description=_POLICY["repair"])
    budget_rows: int | None = Field(None, ge=1, description=_POLICY["budget_rows"])


PolicyShorthand = Annotated[str, Field(examples=["auto", "value:k8", "drained:0.5:k4"], max_length=MAX_NAME)]
"""A policy's short name, as of `astargate evaluate --policies`."""
PolicyField = Annotated[
    PolicyRequest | None, BeforeValidator(_named_policy, json_schema_input_type=PolicyRequest | PolicyShorthand | None)
]


class GateSettings(Reply):
    source: GateSource
    fraction: float | None = None
    margin: float | None = None
    confidence: float | None = None
    row_price: float | None = None
    threshold: float | None = None
    earliest: float | None = None
    recheck: int | None = None


class RepairSettings(Reply):
    selector: Selector
    reopen: int
    max_rounds: int
    anchor: Annotated[Any, WithJsonSchema(_ANCHORED)]
    """Where rounds begin: 'end' or a fraction of the steps, that of the peak where it was asked for and is known."""
    rollouts: int | None = None


class ResolvedPolicy(Reply):
    """The policy with every field filled in."""

    preset: Preset
    guidance_scale: float
    guided_width: int
    order: str
    plausibility: float | None
    boost_threshold: float | None
    gate: GateSettings
    tail_width: int
    tail_rule: str
    tail_schedule: TailSchedule
    tail_mend: int | None
    tail_temperature: float | None
    tail_threshold: float | None
    tail_reuse: ReuseMode | None
    tail_refresh: int
    on_fallback: OnFallback
    repair: RepairSettings | None
    budget_rows: int | None
