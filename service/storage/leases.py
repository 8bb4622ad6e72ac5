"""Leases: which server works on a row of a queue in the database, and what becomes of it when that server dies.

Every write of a holder extends its lease and names the token of its claim. A server that was taken over writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, and_, func, or_, select, update
from sqlalchemy.sql import ColumnElement

from service.storage.database import Database

logger = logging.getLogger(__name__)
R = TypeVar("R")

MAX_ATTEMPTS: Final = 5
"""Servers that may die while they run a job before it is given up: a job that kills them must not do so for ever."""


class LeaseLostError(RuntimeError):
    """The job is no longer this server's: cancelled, or taken over after its lease ran out."""


class Leases:
    """The queue `table`: rows with an id, a status, a model and the columns of a lease. `owner` names this server.

    Its columns: id, model_hash, status ("queued", "running", or ended), created, started, finished, error, owner,
    token, attempts, lease_until.
    """

    def __init__(self, table: Table, database: Database, owner: str, seconds: float) -> None:
        self.table, self.database, self.owner, self.seconds = table, database, owner, seconds

    def claim(self, connection: Connection, model_hash: str) -> str | None:
        """Id of the oldest row for this model that nobody works on (its owner's lease may have run out), now this
        server's; None where there is none, or none that may be tried again (`give_up`).
        """
        c = self.table.c
        wanted = and_(self._free(model_hash), c.attempts < MAX_ATTEMPTS)
        oldest = select(c.id).where(wanted).order_by(c.created, c.id).limit(1)
        row_id: str | None = connection.scalar(oldest.with_for_update(skip_locked=True))
        if row_id is not None:
            values = self.claimed(token=c.token + 1, attempts=c.attempts + 1)
            values["started"] = func.coalesce(c.started, self.database.now)
            connection.execute(update(self.table).where(c.id == row_id).values(values))
        return row_id

    def claim_readable(self, connection: Connection, model_hash: str, read: Callable[[str], R]) -> R | None:
        """`claim`, and what `read` makes of the row. A row that cannot be read fails for good and holds
        up no other.
        """
        while (row_id := self.claim(connection, model_hash)) is not None:
            try:
                return read(row_id)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                logger.error("%s in %s is damaged and given up: %s", row_id, self.table.name, error)
                ended = {"status": "failed", "finished": self.database.now, "lease_until": None}
                ended["error"] = "what the database holds of it is damaged"
                connection.execute(update(self.table).where(self.table.c.id == row_id).values(ended))
        return None

    def give_up(self, connection: Connection, model_hash: str) -> int:
        """Rows for this model that too many servers stopped in the middle of fail for good; how many that were now."""
        reason = f"{MAX_ATTEMPTS} servers stopped in the middle of this job; it is not tried again"
        given_up = {"status": "failed", "finished": self.database.now, "error": reason, "lease_until": None}
        wanted = and_(self._free(model_hash), self.table.c.attempts >= MAX_ATTEMPTS)
        return connection.execute(update(self.table).where(wanted).values(given_up)).rowcount

    def _free(self, model_hash: str) -> ColumnElement[bool]:
        c = self.table.c
        free = or_(c.status == "queued", and_(c.status == "running", c.lease_until < self.database.now))
        return and_(c.model_hash == model_hash, free)

    def claimed(self, *, token: Any = 1, attempts: Any = 1) -> dict[str, Any]:
        """Values of a row that this server works on from now on."""
        now = self.database.now
        lease = {"lease_until": now + self.seconds, "started": now}
        return {"status": "running", "owner": self.owner, "token": token, "attempts": attempts, **lease}

    @contextmanager
    def held(
        self, row_id: str, token: int, values: dict[str, Any] | None = None, *, lease: bool = True
    ) -> Iterator[Connection]:
        """A write on behalf of the row's holder: nothing of it happens once another one holds it (`LeaseLostError`).

        `lease` False ends the lease with it.
        """
        values = {**(values or {}), "lease_until": self.database.now + self.seconds if lease else None}
        with self.database.write() as connection:
            if connection.execute(update(self.table).where(self._mine(row_id, token)).values(values)).rowcount != 1:
                raise LeaseLostError(f"job {row_id} is no longer this server's")
            yield connection

    def _mine(self, row_id: str, token: int) -> ColumnElement[bool]:
        c = self.table.c
        return and_(c.id == row_id, c.token == token, c.status == "running")

    def release(self, row_id: str, token: int) -> None:
        """Put the row back for another server to go on with. Raises `LeaseLostError`."""
        given_back = {"status": "queued", "owner": None, "attempts": self.table.c.attempts - 1}
        with self.held(row_id, token, given_back, lease=False):
            pass

    def fail(self, row_id: str, token: int, error: str) -> None:
        """The row fails for good. Raises `LeaseLostError`."""
        with self.held(row_id, token, {"status": "failed", "error": error, "finished": self.database.now}, lease=False):
            pass
