"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Any, Literal

from astargate_client.transport.reply import Reply

from . import shared


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


class CanvasEvent(Reply):
    """Event `canvas`: the canvas of a template before its first step."""

    index: int
    canvas: list[int]
    """The model's mask id where a token will be written."""

    pieces: list[str]
    positions: list[int]
    """Where a token will be written: those of the blanks."""


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


class HandoffEvent(Reply):
    """Event `handoff`: guidance of one sample ended before `step`."""

    index: int
    step: int
    fraction: float
    committed_fraction: float


class MeasuredLoss(Reply):
    """Success of full CFG less the gate's, with its 95 % interval."""

    loss: float
    low: float
    high: float
    pairs: int
    """Pairs of texts behind it: one guided to the end, one handed off."""


class Pass(Reply):
    """One judged text: an attempt's first (round 0), or a repair round's."""

    attempt: int
    round: int
    preset: Literal["base", "full_cfg", "handoff", "parallel_tail", "reopen_repair", "auto"]
    selector: (
        Literal[
            "constraint_aware",
            "keyword_argmax",
            "commit_confidence",
            "guidance_disagreement",
            "leave_one_out",
            "truncated_committor",
            "committor",
            "random",
            "restart",
        ]
        | None
    )
    """What chose the positions; null in round 0."""

    reopened: list[int]
    text: str
    satisfied: bool
    score: float
    forward_evaluations: int
    """Of the whole sample until then."""


class ReopenEvent(Reply):
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

    passes: list[Pass]
    """Every text that was judged, in order."""

    anchor_reason: str | None = None
    """Why repair began at the end of the run in place of the 'peak' that was asked for."""


class StepEvent(Reply):
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


class Trace(Reply):
    """The run of one sample: each step's StepStats, with `pieces`, one display string a token."""

    start_step: int
    steps: list[dict[str, Any]]
    resumed: list[dict[str, Any]]
    """Repair rounds and further attempts: the canvas from which step `index` of `steps` went on."""

    tokens: list[int]
    pieces: list[str]


class Usage(Reply):
    prompt_tokens: int
    completion_tokens: int
    forward_evaluations: int


class BriefResponse(Reply):
    """The answer with detail: 'brief'."""

    id: str
    model: str
    samples: list[BriefSample]


class GateResult(Reply):
    source: Literal["fraction", "constant", "recorded", "raw", "policy", "value", "risk", "drained", "never"]
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

    evidence: Literal["audited", "pooled", "none"] = "none"
    """
    What is known of the gate: 'audited' in this very setting, 'pooled' over many settings of this model, or 'none'
    (no gate, one of your own, or a setting outside what was measured).
    """

    measured_loss: MeasuredLoss | None = None
    """What it lost of full CFG's success where that was measured; negative where it gained."""


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
    blanks: list[str] | None = None
    """What stands in each blank of a template; null for a free canvas."""

    repair: RepairResult | None = None
    trace: Trace | None = None


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
    policy: shared.ResolvedPolicy
    samples: list[Sample]
    usage: Usage
