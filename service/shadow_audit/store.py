"""The shadow audit in the database: audits queue, a server claims one under a lease, and each ends as a numbered pair.

Pairs of a gate are numbered in the order in which its audits were queued, even where a later one ends first.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, Integer, Select, and_, cast, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import ColumnElement

from service.backend.watched_gates import AuditedGate
from service.shadow_audit.sample import AuditCandidate
from service.shadow_audit.tables import (
    AUDIT_COLUMNS,
    AUDITS,
    GATES,
    PAIR_COLUMNS,
    UNFINISHED,
    AuditRecord,
    CompletedPair,
)
from service.storage.database import Database
from service.storage.leases import Leases

_ORDER_LOCK: Final = 0x73686477
"""Key of the PostgreSQL advisory lock under which pairs get their numbers: they commit in that order."""

_APART: Final = 1e-5
"""Seconds between audits that are queued together, so that their order is known where a clock has coarse ticks."""


@dataclass(frozen=True, slots=True)
class GateRecord:
    """A watched gate in the database, and what became of the samples that were chosen for it."""

    gate: AuditedGate
    state: str
    since: float
    """When this state began, Unix time."""
    kept: int = 0
    """Finished without a handoff."""
    unfinished: int = 0
    """Cancelled or failed before their handoff."""
    dropped: int = 0
    """Handed off, and found no room in the queue."""
    queued: int = 0
    """Handed off, and found room."""
    failed: int = 0
    """Of those: the continuation failed."""
    waiting: int = 0
    """Of those: not compared yet."""

    @property
    def handoff_share(self) -> float | None:
        """Share of the chosen samples that were handed off, of those that lived to see the decision; None without."""
        handoffs = self.queued + self.dropped
        return handoffs / (handoffs + self.kept) if handoffs + self.kept else None


class ShadowStore:
    """Every statement about audits. `owner` names this server process; methods may be called from any thread."""

    def __init__(self, database: Database, owner: str, lease_seconds: float) -> None:
        self.database = database
        self._leases = Leases(AUDITS, database, owner, lease_seconds)

    # -- samples that have ended -------------------------------------------------------------------------------------

    def keep(self, cases: Sequence[AuditCandidate], counts: Mapping[AuditedGate, Counter[str]], limit: int) -> int:
        """Queue audits while fewer than `most` are unfinished, and add to the gates' counts; how many did not fit.

        A sample that is there already is left alone.
        """
        dropped: Counter[AuditedGate] = Counter()
        now = self.database.now
        with self.database.write() as connection:
            self._know(connection, {*(case.gate for case in cases), *counts})
            room = limit - self._unfinished(connection)
            for index, case in enumerate(cases):
                if room <= 0:
                    dropped[case.gate] += 1
                    continue
                self._insert(connection, case, now + index * _APART)
                room -= 1
            for gate in {*counts, *dropped}:
                counted = Counter(counts.get(gate, {})) + Counter(dropped=dropped[gate])
                values = {name: GATES.c[name] + number for name, number in counted.items()}
                if values:
                    connection.execute(update(GATES).where(GATES.c.id == gate.id).values(values))
        return dropped.total()

    def _insert(self, connection: Connection, case: AuditCandidate, created: ColumnElement[float]) -> None:
        values: dict[str, Any] = {
            "id": f"aud-{uuid.uuid4().hex}",
            "gate_id": case.gate.id,
            "model_hash": case.gate.model_hash,
            "created": created,
            "status": "queued",
            f"{case.served}_ok": case.served_ok,
            "texts": {} if case.served_text is None else {case.served: case.served_text},
        }
        values |= {name: getattr(case, name) for name in ("request_id", "sample", "served", "prompt", "step")}
        values |= {name: getattr(case, name) for name in ("recipe", "decision", "features")}
        kind = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(kind.insert(AUDITS).values(values).on_conflict_do_nothing())

    def _know(self, connection: Connection, gates: Iterable[AuditedGate]) -> None:
        kind = postgresql if connection.dialect.name == "postgresql" else sqlite
        for gate in sorted(gates, key=lambda one: one.id):
            now = self.database.now
            values = {**asdict(gate), "settings": dict(gate.settings), "id": gate.id, "created": now, "since": now}
            statement = kind.insert(GATES).values(**values, state="uncertified")
            connection.execute(statement.on_conflict_do_nothing())

    @staticmethod
    def _unfinished(connection: Connection) -> int:
        waiting = AUDITS.c.status.in_(UNFINISHED)
        return connection.scalar(select(func.count()).select_from(AUDITS).where(waiting)) or 0

    def waiting(self) -> int:
        """Audits of all models that are queued or running."""
        with self.database.read() as connection:
            return self._unfinished(connection)

    # -- workers -----------------------------------------------------------------------------------------------------

    def claim(self, model_hash: str) -> AuditRecord | None:
        """The oldest audit for this model that nobody runs, now this server's."""
        with self.database.write() as connection:

            def read(row_id: str) -> AuditRecord:
                return AuditRecord.of(connection.execute(select(*AUDIT_COLUMNS).where(AUDITS.c.id == row_id)).one())

            return self._leases.claim_readable(connection, model_hash, read)

    def give_up(self, model_hash: str) -> int:
        """Audits that too many servers died of fail for good; how many that were now."""
        with self.database.write() as connection:
            return self._leases.give_up(connection, model_hash)

    def heartbeat(self, audit: AuditRecord) -> None:
        """Extend the lease. Raises `LeaseLostError`."""
        with self._leases.held(audit.id, audit.token):
            pass

    def release(self, audit: AuditRecord) -> None:
        """Put the audit back. Raises `LeaseLostError`."""
        self._leases.release(audit.id, audit.token)

    def fail(self, audit: AuditRecord, error: str) -> None:
        """The audit fails for good. Raises `LeaseLostError`."""
        self._leases.fail(audit.id, audit.token, error)

    def finish(self, audit: AuditRecord, *, handoff: bool, full: bool, rows: int, texts: Mapping[str, str]) -> None:
        """The pair is complete; its number comes once no earlier one is unfinished. Raises `LeaseLostError`."""
        ended = {"status": "succeeded", "handoff_ok": handoff, "full_ok": full, "rows": rows, "texts": dict(texts)}
        ended["finished"] = self.database.now
        with self._leases.held(audit.id, audit.token, ended, lease=False) as connection:
            self._number(connection, audit.model_hash)

    def _number(self, connection: Connection, model_hash: str) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_ORDER_LOCK)))
        last = connection.scalar(select(func.max(AUDITS.c.sequence))) or 0
        due = connection.scalars(_due(model_hash).order_by(AUDITS.c.created, AUDITS.c.id)).all()
        for number, row_id in enumerate(due, start=last + 1):
            connection.execute(update(AUDITS).where(AUDITS.c.id == row_id).values(sequence=number))

    # -- readers -----------------------------------------------------------------------------------------------------

    def pairs(self, model_hash: str, after: int) -> list[CompletedPair]:
        """The pairs of a model numbered above `after`, in order: of each gate, in the order in which its audits were
        queued, up to the first that has not ended. Which of two ends first may depend on how they end.
        """
        with self.database.read() as connection:
            held_up = connection.execute(_due(model_hash).limit(1)).first()  # by one that failed since
        if held_up is not None:
            with self.database.write() as connection:
                self._number(connection, model_hash)
        query = select(*PAIR_COLUMNS).where(AUDITS.c.model_hash == model_hash, AUDITS.c.sequence > after)
        with self.database.read() as connection:
            return [CompletedPair.of(row) for row in connection.execute(query.order_by(AUDITS.c.sequence))]

    def gates(self, model_hash: str, family: str | None = None) -> list[GateRecord]:
        """The watched gates of a model (and family), oldest first."""
        numbers = {"waiting": AUDITS.c.status.in_(UNFINISHED), "failed": AUDITS.c.status == "failed"}
        sums = [func.sum(cast(wanted, Integer)).label(name) for name, wanted in numbers.items()]
        by_gate = select(AUDITS.c.gate_id, func.count().label("queued"), *sums).group_by(AUDITS.c.gate_id).subquery()
        query = select(GATES, *(by_gate.c[name] for name in ("queued", *numbers)))
        query = query.outerjoin(by_gate, by_gate.c.gate_id == GATES.c.id)
        query = query.where(GATES.c.model_hash == model_hash).order_by(GATES.c.created, GATES.c.id)
        if family is not None:
            query = query.where(GATES.c.family == family)
        with self.database.read() as connection:
            return [_gate_record(dict(row._mapping)) for row in connection.execute(query)]

    def changed(self, gate: AuditedGate, state: str) -> None:
        """Write down the state of a gate, and since when, unless it is there."""
        new = {"state": state, "since": self.database.now}
        with self.database.write() as connection:
            self._know(connection, [gate])
            connection.execute(update(GATES).where(GATES.c.id == gate.id, GATES.c.state != state).values(new))

    def purge(self, seconds: float, held: Collection[str]) -> None:
        """Forget prompts, texts and features of what ended more than `seconds` ago, and audits that have waited for so
        long for a server with their model; and all of the gates that have been idle for so long and are not `held`
        (ids). The verdicts of the others stay: their state stands on them.
        """
        old = self.database.now - seconds
        ended = and_(AUDITS.c.status.not_in(UNFINISHED), AUDITS.c.finished < old)
        payload = dict.fromkeys(("recipe", "decision", "features", "texts"))
        last = select(func.max(AUDITS.c.sequence)).scalar_subquery()  # its row stays: numbers must never come again
        used = select(AUDITS.c.gate_id).where(or_(AUDITS.c.created >= old, AUDITS.c.sequence == last))
        with self.database.write() as connection:
            connection.execute(update(AUDITS).where(ended, AUDITS.c.recipe.is_not(None)).values(payload))
            connection.execute(delete(AUDITS).where(AUDITS.c.status == "queued", AUDITS.c.created < old))
            idle = and_(GATES.c.created < old, GATES.c.id.not_in(held), GATES.c.id.not_in(used))
            connection.execute(delete(GATES).where(idle))


def _due(model_hash: str) -> Select[tuple[str]]:
    """Ids of the complete pairs that have no number yet and whose gate has no earlier audit unfinished."""
    c, other = AUDITS.c, AUDITS.alias()
    earlier = and_(other.c.gate_id == c.gate_id, other.c.status.in_(UNFINISHED), other.c.created <= c.created)
    complete = and_(c.model_hash == model_hash, c.status == "succeeded", c.sequence.is_(None))
    return select(c.id).where(complete, ~select(other.c.id).where(earlier).exists())


def _gate_record(row: Mapping[str, Any]) -> GateRecord:
    settings = tuple(sorted(row["settings"].items()))
    named = {name: row[name] for name in ("model_hash", "family", "source", "version", "tail_width")}
    gate = AuditedGate(**named, settings=settings)
    names = ("kept", "unfinished", "dropped", "queued", "failed", "waiting")
    return GateRecord(gate, row["state"], row["since"], **{name: row[name] or 0 for name in names})
