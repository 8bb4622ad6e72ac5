"""Wire types of POST /generate: the request, the answer, the events of its stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from decoding.gates.protocol import Evidence
from decoding.policy.decoding_policy import MAX_TEMPERATURE, Preset
from decoding.policy.gate import GateSource
from decoding.policy.repair import Selector
from decoding.request.job import Sampling
from decoding.request.validation import MAX_STEPS
from decoding.sampling.commit_order import CONFIDENCE_KINDS
from service.schemas.base import (
    MAX_CANVAS,
    MAX_PROMPT_CHARACTERS,
    MAX_SEED,
    MAX_TRACE_STEPS,
    Reply,
    Request,
    choices,
    field_docs,
)
from service.schemas.constraint import FAMILY_SCHEMA, ConstraintObject
from service.schemas.policy import PolicyField, ResolvedPolicy

_SAMPLING = field_docs(Sampling)


class CanvasBody(Request):
    """A canvas to be decoded: what it is asked for, its shape, and how tokens are drawn."""

    prompt: str = Field("", max_length=MAX_PROMPT_CHARACTERS)
    """May be empty where a constraint is given and rendered."""
    constraint: ConstraintObject | None = None
    family: str | None = Field(None, json_schema_extra=FAMILY_SCHEMA)
    """Family whose gates decide: any name of your own, or the constraint's own, which it is where left out."""
    render_constraint: bool = True
    """Append the constraint's instruction to the prompt; false where the prompt says it already. Needs a constraint."""
    template: str | None = Field(None, max_length=MAX_PROMPT_CHARACTERS)
    """A text with blanks in place of a free canvas, such as "Dear [blank:2], thank you for [blank:3-8].": the rest
    stays as it is. [blank:N] takes N tokens, [blank:A-B] a number from A to B that the seed draws; \\[ is a bracket.
    """
    policy: PolicyField = None
    """An object, or a policy's name for one: 'auto', 'value:k8'."""
    gen_length: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Canvas length L in tokens; by default the model's, longer where the constraint needs more."""
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    """Denoising steps T; by default gen_length."""
    block_length: int | None = Field(None, ge=1, le=MAX_CANVAS)
    """Semi-autoregressive block; must divide gen_length. By default the model's."""
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    """By default the model's (GET /v1/models)."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Nucleus; 1 is the whole distribution. By default the model's."""
    confidence: str = Field("probability", json_schema_extra=choices(*CONFIDENCE_KINDS))
    """What ranks candidates for commitment; left out with policy.order 'random', which ranks by noise."""
    eos_fill: bool = Field(False, description=_SAMPLING["eos_fill"])
    suppress_eos: bool = Field(False, description=_SAMPLING["suppress_eos"])
    defer_eos: bool | None = Field(None, description=_SAMPLING["defer_eos"] + " By default where the model needs it.")
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    """Sample i is decoded with seed + i; null draws one. The seeds used are in the response."""


Detail = Literal["full", "brief"]


class GenerateRequest(CanvasBody):
    """One or more texts (samples) from a prompt, a constraint, or both."""

    model: str | None = None
    """The served model's name or hash, as of GET /v1/models; any other is refused. May be left out."""
    negative_prompt: str | None = Field(None, max_length=MAX_PROMPT_CHARACTERS)
    """What guidance leads away from: the unconditional rows read it in place of the masked prompt. No gate was measured
    so: a family's gate is replaced as on_fallback says, and gate.evidence is at most 'pooled'.
    """
    detail: Detail = "full"
    """'brief': of each sample text, satisfied, rows, handoff and seed, nothing else; in the events of a stream too."""
    nulls: bool = True
    """false leaves out every field that is null."""

    n: int = Field(1, ge=1, le=MAX_CANVAS)
    """Samples; GET /v1/models has this server's limits on n, on n * gen_length and on estimated rows."""
    stream: bool = False
    """Server-sent events instead of one JSON object."""
    trace: bool = Field(False, description=f"Return every denoising step; n * steps of at most {MAX_TRACE_STEPS}.")
    deadline_s: float | None = Field(None, gt=0)
    """Seconds after which the request fails."""
    audit_share: float | None = Field(None, ge=0, le=1)
    """Share of the samples that the shadow audit chooses, in place of the server's; for keys with scope `admin`."""


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
    """0: the shadow audit of a sample runs after its answer, at the server's expense (`/metrics` counts its rows)."""
    total: int
    full_cfg_equivalent: int
    """Rows of full CFG with as many serial steps: 2T."""
    saved: int
    """full_cfg_equivalent - total - skipped_by_eos; negative where the policy cost more."""
    skipped_by_eos: int
    """Rows not run because an end-of-text filled the rest; no part of saved."""


class MeasuredLoss(Reply):
    """Success of full CFG less the gate's, with its 95 % interval."""

    loss: float
    low: float
    high: float
    pairs: int
    """Pairs of texts behind it: one guided to the end, one handed off."""


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
    evidence: Evidence = "none"
    """What is known of the gate: 'audited' in this very setting, 'pooled' over many settings of this model, or 'none'
    (no gate, one of your own, or a setting outside what was measured).
    """
    measured_loss: MeasuredLoss | None = None
    """What it lost of full CFG's success where that was measured; negative where it gained."""
    nearest_regime: dict[str, Any] | None
    """The nearest setting that a gate was audited in."""


class PassReply(Reply):
    """One judged text: an attempt's first (round 0), or a repair round's."""

    attempt: int
    round: int
    preset: Preset
    selector: Selector | None
    """What chose the positions; null in round 0."""
    reopened: list[int]
    text: str
    satisfied: bool
    score: float
    forward_evaluations: int
    """Of the whole sample until then."""


class RepairResult(Reply):
    """What followed a first text that failed its constraint."""

    attempts: int
    """Policies tried: 1, or more with preset 'auto'."""
    rounds: int
    """Repair rounds, of all attempts."""
    reopened: int
    """Positions reopened, of all rounds."""
    recovered: bool
    """The first text failed and this one does not."""
    kept: int
    """Index of the pass that the text is from."""
    passes: list[PassReply]
    """Every text that was judged, in order."""
    anchor_reason: str | None = None
    """Why repair began at the end of the run in place of the 'peak' that was asked for."""


class TraceReply(Reply):
    """The run of one sample: each step's StepStats, with `pieces`, one display string a token."""

    start_step: int
    steps: list[dict[str, Any]]
    resumed: list[dict[str, Any]]
    """Repair rounds and further attempts: the canvas from which step `index` of `steps` went on."""
    tokens: list[int]
    pieces: list[str]


class Sample(Reply):
    index: int
    seed: int
    text: str
    blanks: list[str] | None = None
    """What stands in each blank of a template; null for a free canvas."""
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
    temperature: float
    top_p: float
    policy: ResolvedPolicy
    samples: list[Sample]
    usage: Usage


class BriefSample(Reply):
    """A sample with detail: 'brief'."""

    text: str
    satisfied: bool | None
    """Whether the constraint holds; null without one."""
    rows: int
    """Forward evaluations."""
    handoff: int | None
    """The step before which guidance ended; null where it lasted to the end, or was never on."""
    seed: int


class BriefResponse(Reply):
    """The answer with detail: 'brief'."""

    id: str
    model: str
    samples: list[BriefSample]


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
    masked: int
    """Masked positions before the step."""
    mending: bool = False
    """Whether the step opened `positions` again to look at them in the finished text (policy.tail_mend)."""


class ReopenEventReply(Reply):
    """Event `reopen`: a finished text of one sample failed its constraint, and decoding goes on from `canvas`."""

    index: int
    attempt: int
    round: int
    """Repair round; 0 where a further attempt begins with an empty canvas."""
    positions: list[int]
    """Positions of `canvas` that were opened again; a text of the wrong length also has its tail moved."""
    canvas: list[int]
    pieces: list[str]
    score: float
    """Graded score of the best text so far."""


class CanvasEvent(Reply):
    """Event `canvas`: the canvas of a template before its first step."""

    index: int
    canvas: list[int]
    """The model's mask id where a token will be written."""
    pieces: list[str]
    positions: list[int]
    """Where a token will be written: those of the blanks."""


class HandoffEvent(Reply):
    """Event `handoff`: guidance of one sample ended before `step`."""

    index: int
    step: int
    fraction: float
    committed_fraction: float
