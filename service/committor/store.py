"""Committor jobs in the database: they queue, a server claims one under a lease, and only that server may write it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, insert, null, select, update
from sqlalchemy.sql import ColumnElement

from service.committor.tables import (
    JOB_COLUMNS,
    JOBS,
    ROLLOUT_COLUMNS,
    ROLLOUTS,
    UNFINISHED,
    JobRecord,
    RolloutRecord,
    newest_first,
)
from service.storage.database import Database, storable
from service.storage.leases import Leases


class QueueLimitError(RuntimeError):
    """Too many jobs are unfinished; `rows_ahead` are the estimated forward evaluations that they have left."""

    def __init__(self, message: str, rows_ahead: int) -> None:
        super().__init__(message)
        self.rows_ahead = rows_ahead


@dataclass(frozen=True, slots=True)
class NewJob:
    """What is known of a job when it arrives."""

    key_id: str
    request: dict[str, Any]
    model: str
    model_hash: str
    rollouts_total: int
    rows_estimated: int


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Unfinished jobs that one key, and all keys together, may have."""

    per_key: int
    total: int


class JobStore:
    """Every statement about jobs. `owner` names this server process; methods may be called from any thread."""

    def __init__(self, database: Database, owner: str, lease_seconds: float) -> None:
        self.database = database
        self._leases = Leases(JOBS, database, owner, lease_seconds)

    # -- callers ---------------------------------------------------------------------------------------------------

    def add(self, new: NewJob, limits: QueueLimits, *, claimed: bool = False) -> JobRecord:
        """Queue a job or, `claimed`, begin with it here. Raises `QueueLimitError`."""
        values: dict[str, Any] = {**asdict(new), "id": f"com-{uuid.uuid4().hex}", "created": self.database.now}
        values |= self._leases.claimed() if claimed else {"status": "queued"}
        with self.database.write() as connection:
            self._check_limits(connection, new.key_id, limits)
            connection.execute(insert(JOBS).values(values))
            return self._one(connection, JOBS.c.id == values["id"])

    def _check_limits(self, connection: Connection, key_id: str, limits: QueueLimits) -> None:
        unfinished = JOBS.c.status.in_(UNFINISHED)
        left = func.coalesce(func.sum(JOBS.c.rows_estimated - JOBS.c.rows_done), 0)
        of_key = connection.scalar(select(func.count()).where(unfinished, JOBS.c.key_id == key_id)) or 0
        of_all, rows = connection.execute(select(func.count(), left).where(unfinished)).one()
        for count, limit, whose in ((of_key, limits.per_key, "of yours"), (of_all, limits.total, "of all callers")):
            if count >= limit:
                raise QueueLimitError(f"{count} jobs {whose} are unfinished already (limit {limit})", max(0, int(rows)))

    def get(self, key_id: str, job_id: str) -> JobRecord | None:
        """A job of this key's; None where there is none."""
        with self.database.read() as connection:
            return self._job_or_none(connection, self._job_of_key(key_id, job_id))

    def page(self, key_id: str, limit: int, after: str | None = None, status: str | None = None) -> list[JobRecord]:
        """This key's jobs, newest first, from after the job `after` on. Raises `UnknownEntryError`."""
        wanted = [] if status is None else [JOBS.c.status == status]
        with self.database.read() as connection:
            rows = newest_first(connection, JOB_COLUMNS, JOBS.c.created, key_id, limit, after, *wanted)
            return [JobRecord.of(row) for row in rows]

    def cancel(self, key_id: str, job_id: str) -> JobRecord | None:
        """Cancel an unfinished job (a finished one stays as it is). Its server stops with its next write."""
        ended = {"status": "cancelled", "finished": self.database.now, "lease_until": None}
        with self.database.write() as connection:
            job_of_key = self._job_of_key(key_id, job_id)
            connection.execute(update(JOBS).where(job_of_key, JOBS.c.status.in_(UNFINISHED)).values(ended))
            return self._job_or_none(connection, job_of_key)

    def counts(self) -> dict[str, int]:
        """Unfinished jobs of all keys by status."""
        query = select(JOBS.c.status, func.count()).where(JOBS.c.status.in_(UNFINISHED)).group_by(JOBS.c.status)
        with self.database.read() as connection:
            return {str(status): int(count) for status, count in connection.execute(query)}

    # -- workers ---------------------------------------------------------------------------------------------------

    def claim(self, model_hash: str) -> JobRecord | None:
        """The oldest job for this model that nobody runs (its owner's lease may have run out), now this server's."""
        with self.database.write() as connection:
            self._leases.give_up(connection, model_hash)
            return self._leases.claim_readable(
                connection, model_hash, lambda job_id: self._one(connection, JOBS.c.id == job_id)
            )

    def heartbeat(self, job: JobRecord) -> None:
        """Extend the lease. Raises `LeaseLostError`."""
        with self._leases.held(job.id, job.token):
            pass

    # A connection may break before the answer is there, so each of these may be called twice: it counts once.

    def save_recording(self, job: JobRecord, recording: dict[str, Any], rows: int) -> None:
        """Keep the recorded run. Raises `LeaseLostError`."""
        first = case((JOBS.c.recording.is_(null()), rows), else_=0)
        with self._leases.held(job.id, job.token, {"recording": recording, "rows_done": JOBS.c.rows_done + first}):
            pass

    def save_rollouts(self, job: JobRecord, rollouts: Sequence[RolloutRecord]) -> None:
        """Keep finished continuations, each once. Raises `LeaseLostError`."""
        key = ROLLOUTS.c.step, ROLLOUTS.c.arm, ROLLOUTS.c.rollout
        batch = [column.in_({getattr(rollout, column.name) for rollout in rollouts}) for column in key]
        with self._leases.held(job.id, job.token) as connection:
            kept = {tuple(row) for row in connection.execute(select(*key).where(ROLLOUTS.c.job_id == job.id, *batch))}
            fresh = [r for r in rollouts if (r.step, r.arm, r.rollout) not in kept]
            if fresh:
                connection.execute(insert(ROLLOUTS), [{"job_id": job.id, **asdict(rollout)} for rollout in fresh])
            progress: dict[str, Any] = {
                "rollouts_done": JOBS.c.rollouts_done + len(fresh),
                "rows_done": JOBS.c.rows_done + sum(rollout.rows for rollout in fresh),
            }
            connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(progress))

    def rollouts(self, job: JobRecord) -> list[RolloutRecord]:
        """What has been kept of a job, by step, arm and number."""
        query = select(*ROLLOUT_COLUMNS).where(ROLLOUTS.c.job_id == job.id).order_by("step", "arm", "rollout")
        with self.database.read() as connection:
            return [RolloutRecord.of(row) for row in connection.execute(query)]

    @contextmanager
    def finishing(self, job: JobRecord, result: dict[str, Any]) -> Iterator[Connection]:
        """The job succeeds, together with what the block writes, or not at all. Raises `LeaseLostError`."""
        ended: dict[str, Any] = {"status": "succeeded", "result": result, "finished": self.database.now}
        ended["rollouts_total"] = JOBS.c.rollouts_done  # an end-of-text may have left grid points out
        with self._leases.held(job.id, job.token, ended, lease=False) as connection:
            yield connection

    def fail(self, job: JobRecord, error: str) -> None:
        """The job fails for good. Raises `LeaseLostError`."""
        self._leases.fail(job.id, job.token, error)

    def release(self, job: JobRecord) -> None:
        """Put the job back for another server to go on with. Raises `LeaseLostError`."""
        self._leases.release(job.id, job.token)

    def purge(self, seconds: float, most: int) -> int:
        """Forget jobs that ended (or arrived, and found no server for their model) more than `seconds` ago, and all but
        the `most` newest ended ones of a key.
        """
        last = func.coalesce(JOBS.c.finished, JOBS.c.created)
        with self.database.write() as connection:
            old = delete(JOBS).where(JOBS.c.status != "running", last < self.database.now - seconds)
            forgotten = int(connection.execute(old).rowcount)
            newer = func.row_number().over(partition_by=JOBS.c.key_id, order_by=(JOBS.c.created.desc(), JOBS.c.id))
            numbered = select(JOBS.c.id, newer.label("number")).where(JOBS.c.status.not_in(UNFINISHED)).subquery()
            many = select(numbered.c.id).where(numbered.c.number > most)
            return forgotten + int(connection.execute(delete(JOBS).where(JOBS.c.id.in_(many))).rowcount)

    # -- parts -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _job_of_key(key_id: str, job_id: str) -> ColumnElement[bool]:
        return and_(JOBS.c.key_id == key_id, JOBS.c.id == storable(job_id))

    @staticmethod
    def _job_or_none(connection: Connection, wanted: ColumnElement[bool]) -> JobRecord | None:
        row = connection.execute(select(*JOB_COLUMNS).where(wanted)).one_or_none()
        return None if row is None else JobRecord.of(row)

    def _one(self, connection: Connection, wanted: ColumnElement[bool]) -> JobRecord:
        job = self._job_or_none(connection, wanted)
        if job is None:
            raise LookupError("a job that was just written is not there")
        return job
