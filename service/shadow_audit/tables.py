"""The tables of the shadow audit: the gates that are watched, and one row for each audited sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from service.storage.database import METADATA
from service.storage.records import DatabaseRecord

Served = Literal["handoff", "full"]
"""Which of the two continuations the caller got; the other one runs in the shadow."""
UNFINISHED: Final = ("queued", "running")
_ID: Final = 64

GATES: Final = Table(
    "audited_gates",
    METADATA,
    Column("id", String(_ID), primary_key=True),
    Column("model_hash", String(64), nullable=False),
    Column("family", String(64), nullable=False),
    Column("source", String(16), nullable=False),
    Column("version", String(64), nullable=False),
    Column("tail_width", Integer, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("created", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("since", Float, nullable=False),
    # Of the samples that were chosen, by what became of them; those that were handed off have a row in AUDITS each.
    Column("kept", Integer, nullable=False, default=0),
    Column("unfinished", Integer, nullable=False, default=0),
    Column("dropped", Integer, nullable=False, default=0),
    Index("audited_gates_by_family", "model_hash", "family"),
)

AUDITS: Final = Table(
    "shadow_audits",
    METADATA,
    Column("id", String(_ID), primary_key=True),
    Column("gate_id", String(_ID), ForeignKey(GATES.c.id, ondelete="CASCADE"), nullable=False),
    Column("model_hash", String(64), nullable=False),
    Column("request_id", String(_ID), nullable=False),
    Column("sample", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("sequence", Integer, unique=True),
    Column("served", String(8), nullable=False),
    Column("prompt", String(_ID), nullable=False),
    Column("step", Integer, nullable=False),
    Column("handoff_ok", Boolean),
    Column("full_ok", Boolean),
    Column("rows", Integer, nullable=False, default=0),
    Column("recipe", JSON(none_as_null=True)),
    Column("decision", JSON(none_as_null=True)),
    Column("features", JSON(none_as_null=True)),
    Column("texts", JSON(none_as_null=True)),
    Column("error", Text),
    Column("owner", String(_ID)),
    Column("token", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("lease_until", Float),
    UniqueConstraint("request_id", "sample"),
    Index("shadow_audits_by_status", "model_hash", "status", "created"),
    Index("shadow_audits_by_gate", "gate_id", "sequence"),
)


@dataclass(frozen=True, slots=True)
class AuditRecord(DatabaseRecord):
    """An audit as the database has it."""

    id: str
    gate_id: str
    model_hash: str
    request_id: str
    sample: int
    status: str
    created: float
    finished: float | None
    sequence: int | None
    """Place among the complete pairs of all servers on this database, from 1: those of a gate in the order in which
    they were queued. None until all earlier ones of its gate have ended.
    """
    served: Served
    prompt: str
    """Digest of the prompt and the constraint: the cluster."""
    step: int
    """The handoff step."""
    handoff_ok: bool | None
    full_ok: bool | None
    rows: int
    """Forward evaluations of the shadow."""
    recipe: dict[str, Any] | None
    """The job and the state at the handoff (`service.shadow_audit.sample.recipe_of`); None once it is forgotten."""
    decision: dict[str, Any] | None
    features: dict[str, Any] | None
    """What the gate saw: the feature schema, and each feature's value; None where the gate reads no statistics."""
    texts: dict[str, str] | None
    error: str | None
    token: int
    attempts: int


AUDIT_COLUMNS: Final = AuditRecord.columns(AUDITS)


@dataclass(frozen=True, slots=True)
class CompletedPair(DatabaseRecord):
    """Both verdicts of an audit, in the order of all servers."""

    sequence: int
    gate_id: str
    prompt: str
    handoff_ok: bool
    full_ok: bool
    finished: float


PAIR_COLUMNS: Final = CompletedPair.columns(AUDITS)
