"""Wire types of GET /v1/gates."""

from __future__ import annotations

from typing import Any, Literal

from gate_models.gates.monitor import GateState
from service.schemas.base import Reply


class CertifiedMargin(Reply):
    """What a `risk` or a `drained` gate promises at one margin of its table, with 95 % confidence."""

    margin: float
    certified: bool
    earliest: float | None
    """No handoff before this fraction of the steps (`risk`); null where nothing is certified."""
    threshold: float | None = None
    """The largest threshold that is certified (`drained`); null where none is."""
    refusal: str | None
    """Why nothing is certified, and how many more calibration prompts would do."""


class GateInfo(Reply):
    family: str | None
    source: str
    version: str
    fraction: float | None
    """Where a constant gate hands off; null: it keeps guidance on, or the gate decides on the way."""
    state: GateState | None = None
    """Of the online shadow audit; null where the gate never hands off, or is not what a request gets that names its
    source and no settings.
    """
    threshold: float | None = None
    """Total variation below which a `drained` gate hands off; null: it never does, or the source has none."""
    regime: dict[str, Any]
    """The setting that it was measured in; it serves no other."""
    checkpoints: list[float]
    """Fractions of the steps before which a learned gate decides."""
    margins: list[CertifiedMargin]
    """Of a `risk` or a `drained` gate. In the list only with ?evidence=true."""
    evidence: dict[str, Any]
    """How it was made: prompts, rollouts, seed, data; `source` says where a cut was not measured here. In the list only
    with ?evidence=true.
    """


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


class GateList(Reply):
    object: Literal["list"] = "list"
    data: list[GateInfo]
    refused: list[str]
    """Stored gates that must not be used, and why."""
    pooled: PooledInfo | None = None
    """What on_fallback 'drained' serves; null where this model was not measured: it gets a cautious one."""


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


class GateFamily(Reply):
    family: str
    gates: list[GateInfo]
    audits: list[OfflineAudit]
    """Of the learned gates that this server holds; empty where none was audited."""
