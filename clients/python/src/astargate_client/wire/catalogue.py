"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astargate_client.transport.reply import Reply

from . import shared


class AuditGap(Reply):
    """A difference of success with its 95 % interval, bootstrap over prompts."""

    value: float
    low: float
    high: float


class AuditedSource(Reply):
    """One gate source at one tail width over all audit prompts, a fallback counting as the full CFG that it gets."""

    source: str
    tail_width: int
    success: float
    low: float
    high: float
    forward_evaluations: float
    """A text, on average."""

    perplexity: float | None
    repeats: float
    handed_off: float
    against_full_cfg: AuditGap
    at_equal_rows: AuditGap | None
    """Success less that of a coin between the two fixed cuts that cost the same on average."""


class CertifiedMargin(Reply):
    """What a `risk` or a `drained` gate promises at one margin of its table, with 95 % confidence."""

    margin: float
    certified: bool
    earliest: float | None
    """No handoff before this fraction of the steps (`risk`); null where nothing is certified."""

    refusal: str | None
    """Why nothing is certified, and how many more calibration prompts would do."""

    threshold: float | None = None
    """The largest threshold that is certified (`drained`); null where none is."""


class ConstraintType(Reply):
    type: str
    family: str | None
    """Family of the example."""

    families: list[str]
    """Families that a constraint of this type may belong to."""

    description: str
    json_schema: dict[str, Any] = Field(..., alias="schema")
    example: dict[str, Any]
    instruction: str
    """The example in English, as it is put into the prompt."""


class GateInfo(Reply):
    family: str | None
    source: str
    version: str
    fraction: float | None
    """Where a constant gate hands off; null: it keeps guidance on, or the gate decides on the way."""

    regime: dict[str, Any]
    """The setting that it was measured in; it serves no other."""

    checkpoints: list[float]
    """Fractions of the steps before which a learned gate decides."""

    margins: list[CertifiedMargin]
    """Of a `risk` or a `drained` gate. In the list only with ?evidence=true."""

    evidence: dict[str, Any]
    """
    How it was made: prompts, rollouts, seed, data; `source` says where a cut was not measured here. In the list only
    with ?evidence=true.
    """

    state: Literal["uncertified", "active", "suspended"] | None = None
    """
    Of the online shadow audit; null where the gate never hands off, or is not what a request gets that names its
    source and no settings.
    """

    threshold: float | None = None
    """Total variation below which a `drained` gate hands off; null: it never does, or the source has none."""


class GateSourceInfo(Reply):
    source: str
    fields: list[str]
    defaults: dict[str, float]
    learned: bool
    """Whether it needs a gate from /v1/gates for the request's family; without one, on_fallback decides."""


class Limits(Reply):
    """Tokens, unless named otherwise."""

    max_prompt: int
    max_canvas: int
    max_samples: int
    max_request_tokens: int
    max_request_rows: int
    """Forward evaluations."""


class OfflineAudit(Reply):
    """Gate sources against each other on fresh runs of prompts that trained nothing (`astargate gate audit`)."""

    gate: str
    """Version of the gate that was audited."""

    model_hash: str
    prompts: int
    samples: int
    seed: int
    judge: str
    """Language model that perplexity is by."""

    points: list[AuditedSource]


class PooledInfo(Reply):
    """The `drained` gate of requests that no other gate fits: one threshold, measured over many settings at once."""

    version: str
    threshold: float | None
    """Total variation below which it hands off; null: none that was tried keeps the loss within the margin."""

    earliest: float
    """No handoff before this fraction of the steps."""

    loss: float | None
    """Success of full CFG less the gate's, on prompts that had no say in its choice."""

    loss_interval_95: list[float] | None
    pairs: int
    rows_of_full_cfg: float | None
    """Share of full CFG's forward evaluations that the same texts took."""

    ranges: dict[str, list[float]]
    """What was measured from its lowest to its highest value; outside, evidence is 'none'."""

    values: dict[str, list[str]]
    """What was measured at these values."""

    withheld: dict[str, dict[str, Any]]
    """Families that it harms, with their loss: their requests keep full CFG."""

    evidence: dict[str, Any]
    """Loss by gate of the grid and by group of settings, seed, processor minutes."""


class PredicateInfo(Reply):
    name: str
    description: str
    instruction: str
    """The predicate in English, as it is put into the prompt."""


class ConstraintList(Reply):
    data: list[ConstraintType]
    families: list[str]
    predicates: list[PredicateInfo]
    """What the type `python` may name on this server."""

    object: Literal["list"] = "list"


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
    policy: shared.ResolvedPolicy
    """Of a request without a policy."""


class GateFamily(Reply):
    family: str
    gates: list[GateInfo]
    audits: list[OfflineAudit]
    """Of the learned gates that this server holds; empty where none was audited."""


class GateList(Reply):
    data: list[GateInfo]
    refused: list[str]
    """Stored gates that must not be used, and why."""

    object: Literal["list"] = "list"
    pooled: PooledInfo | None = None
    """What on_fallback 'drained' serves; null where this model was not measured: it gets a cautious one."""


class Model(Reply):
    id: str
    created: int
    """Unix time of the server's start, seconds."""

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
    object: Literal["model"] = "model"
    owned_by: str = "astargate"


class ModelList(Reply):
    data: list[Model]
    object: Literal["list"] = "list"


class PresetInfo(Reply):
    preset: str
    description: str
    policy: shared.ResolvedPolicy


class PolicyList(Reply):
    data: list[PresetInfo]
    gate_sources: list[GateSourceInfo]
    repair_selectors: list[str]
    orders: list[str]
    confidence_kinds: list[str]
    tail_rules: list[str]
    object: Literal["list"] = "list"
