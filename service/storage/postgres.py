"""Connections to PostgreSQL that give up waiting: a server that hangs must not hang this one.

TCP's own timeouts see a machine that is gone, the server's statement timeout a statement that is slow. Neither sees a
server process that is stopped: its kernel still answers. Hence the limit here on the wait for any answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen

R = TypeVar("R")

ANSWER_SECONDS: Final = 10.0
"""How long an answer may take before the connection is given up."""
PREPARE_SECONDS: Final = 300.0
"""The same while tables are created or migrated, which another server may be doing right now."""
CONNECT_ARGUMENTS: Final = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""libpq's parameters: a machine that is gone is noticed within about ten seconds."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises `OperationalError`, and is closed, where an answer takes longer than `answer_seconds`."""

    answer_seconds: float = ANSWER_SECONDS

    def wait(self, gen: PQGen[R], *args: Any, **kwargs: Any) -> R:
        """Run one exchange with the server."""
        try:
            return super().wait(_limited(gen, self.answer_seconds), *args, **kwargs)
        except _NoAnswerError:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"it gives no answer within {self.answer_seconds:g} s") from None


class _NoAnswerError(Exception):
    """The time for an answer is up."""


def _limited(gen: PQGen[R], seconds: float) -> Generator[Any, Any, R]:
    """`gen`, which is resumed several times a second while it waits; raises `_NoAnswerError` after `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                raise _NoAnswerError
            state = gen.send(ready)
    except StopIteration as end:
        result: R = end.value
        return result


def connect(arguments: tuple[Any, ...], parameters: dict[str, Any]) -> BoundedConnection:
    """A connection; its server ends statements that take longer than this side waits."""
    connection = BoundedConnection.connect(*arguments, **parameters)
    try:
        connection.execute(f"SET statement_timeout = {int(1000 * ANSWER_SECONDS)}")
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection
