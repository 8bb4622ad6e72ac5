"""The tables of committor jobs, their rollouts and measured horizons, and their rows as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    select,
    tuple_,
)
from sqlalchemy.sql import ColumnElement

from service.schemas.committor import JobStatus
from service.storage.database import METADATA, storable
from service.storage.records import DatabaseRecord

UNFINISHED: Final[tuple[JobStatus, ...]] = ("queued", "running")
_ID: Final = 64
_KEY_ID: Final = 128

JOBS: Final = Table(
    "committor_jobs",
    METADATA,
    Column("id", String(_ID), primary_key=True),
    Column("key_id", String(_KEY_ID), nullable=False),
    Column("status", String(16), nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("request", JSON, nullable=False),
    Column("model", String(256), nullable=False),
    Column("model_hash", String(64), nullable=False),
    Column("rollouts_total", Integer, nullable=False),
    Column("rollouts_done", Integer, nullable=False, default=0),
    Column("rows_estimated", Integer, nullable=False),
    Column("rows_done", Integer, nullable=False, default=0),
    Column("recording", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    Column("owner", String(_ID)),
    Column("token", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("lease_until", Float),
    Index("committor_jobs_by_key", "key_id", "created"),
    Index("committor_jobs_by_status", "status", "created"),
)

ROLLOUTS: Final = Table(
    "committor_rollouts",
    METADATA,
    Column("job_id", String(_ID), ForeignKey(JOBS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("arm", String(16), primary_key=True),
    Column("rollout", Integer, primary_key=True),
    Column("satisfied", Boolean, nullable=False),
    Column("score", Float, nullable=False),
    Column("rows", Integer, nullable=False),
)

HORIZONS: Final = Table(
    "measured_horizons",
    METADATA,
    Column("id", String(_ID), primary_key=True),
    Column("key_id", String(_KEY_ID), nullable=False),
    Column("setting", String(_ID), nullable=False),
    Column("subject", String(_ID), nullable=False),
    Column("model_hash", String(64), nullable=False),
    Column("family", String(64)),
    Column("regime", JSON, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("constraint_spec", JSON, nullable=False),
    Column("step", Integer),
    Column("peak", Integer),
    Column("handoff_fate", String(32), nullable=False),
    Column("rollouts", Integer, nullable=False),
    Column("job_id", String(_ID), nullable=False),
    Column("measured", Float, nullable=False),
    UniqueConstraint("key_id", "model_hash", "setting"),
)


@dataclass(frozen=True, slots=True)
class JobRecord(DatabaseRecord):
    """A committor job as the database has it."""

    id: str
    key_id: str
    status: JobStatus
    created: float
    started: float | None
    finished: float | None
    request: dict[str, Any]
    model: str
    model_hash: str
    rollouts_total: int
    rollouts_done: int
    rows_estimated: int
    rows_done: int
    recording: dict[str, Any] | None
    """The recorded guided run that the rollouts start from; None until it has been run, or where none is needed."""
    result: dict[str, Any] | None
    error: str | None
    owner: str | None
    token: int
    """Grows with every claim: what an earlier owner still writes is refused."""
    attempts: int

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


JOB_COLUMNS: Final = JobRecord.columns(JOBS)


@dataclass(frozen=True, slots=True)
class RolloutRecord(DatabaseRecord):
    """One finished continuation."""

    step: int
    arm: str
    rollout: int
    satisfied: bool
    score: float
    rows: int


ROLLOUT_COLUMNS: Final = RolloutRecord.columns(ROLLOUTS)


@dataclass(frozen=True, slots=True)
class HorizonRecord(DatabaseRecord):
    """A measured horizon. `step` None: censored, no safe handoff before the end."""

    id: str
    key_id: str
    setting: str
    """Digest of everything that determines the run's distribution: see `service.committor.horizons.setting_of`."""
    subject: str
    """Digest of the prompt and the constraint alone."""
    model_hash: str
    family: str | None
    regime: dict[str, Any]
    prompt: str
    constraint_spec: dict[str, Any]
    step: int | None
    peak: int | None
    """Step at which q0 is highest; None where it was not kept."""
    handoff_fate: str
    rollouts: int
    """Continuations an arm at each point of the grid."""
    job_id: str
    measured: float


HORIZON_COLUMNS: Final = HorizonRecord.columns(HORIZONS)


class UnknownEntryError(LookupError):
    """A page was asked for after an entry that the key does not own (any more). An empty page would hide that."""


def newest_first(
    connection: Connection,
    columns: Iterable[Column[Any]],
    time: Column[float],
    key_id: str,
    limit: int,
    after: str | None,
    *wanted: ColumnElement[bool],
) -> Sequence[Row[Any]]:
    """A page of what a key owns in the table of `time`, from after the row with the id `after` on.

    Raises `UnknownEntryError`.
    """
    table = time.table
    of_key, order = table.c.key_id == key_id, (time, table.c.id)
    query = select(*columns).where(of_key, *wanted).order_by(*(column.desc() for column in order)).limit(limit)
    if after is not None:
        last = select(*order).where(of_key, table.c.id == storable(after))
        if connection.execute(last).one_or_none() is None:
            raise UnknownEntryError(after)
        query = query.where(tuple_(*order) < last.scalar_subquery())
    return connection.execute(query).all()
