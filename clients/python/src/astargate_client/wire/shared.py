"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Literal

from astargate_client.transport.reply import Reply


class ErrorDetail(Reply):
    message: str
    type: str
    param: str | None
    """Dotted path of the field at fault, such as policy.gate.fraction or constraint.keywords[1]."""

    code: str


class ErrorReply(Reply):
    """The body of every answer other than success."""

    error: ErrorDetail


class GateSettings(Reply):
    source: Literal["fraction", "constant", "recorded", "raw", "policy", "value", "risk", "drained", "never"]
    confidence: float | None = None
    earliest: float | None = None
    fraction: float | None = None
    margin: float | None = None
    recheck: int | None = None
    row_price: float | None = None
    threshold: float | None = None


class RepairSettings(Reply):
    selector: Literal[
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
    reopen: int
    max_rounds: int
    anchor: Literal["end"] | float
    """Where rounds begin: 'end' or a fraction of the steps, that of the peak where it was asked for and is known."""

    rollouts: int | None = None


class ResolvedPolicy(Reply):
    """The policy with every field filled in."""

    preset: Literal["base", "full_cfg", "handoff", "parallel_tail", "reopen_repair", "auto"]
    guidance_scale: float
    guided_width: int
    order: str
    plausibility: float | None
    boost_threshold: float | None
    gate: GateSettings
    tail_width: int
    tail_rule: str
    tail_schedule: Literal["constant", "growing"]
    tail_mend: int | None
    tail_temperature: float | None
    tail_threshold: float | None
    tail_reuse: Literal["prefix", "dual"] | None
    tail_refresh: int
    on_fallback: Literal["drained", "full_cfg", "base", "reject"]
    repair: RepairSettings | None
    budget_rows: int | None
