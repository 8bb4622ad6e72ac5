"""Opens the database (SQLite in a file by default, PostgreSQL by URL), creates its tables and runs transactions.

Times are seconds since the epoch by the database's own clock, so that servers whose clocks differ agree on a lease.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    literal_column,
    make_url,
    select,
    text,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql import ColumnElement

from service.storage.errors import DatabaseError
from service.storage.migrations import MIGRATIONS

logger = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 2
METADATA: Final = MetaData()
SCHEMA: Final = Table("schema_version", METADATA, Column("version", Integer, primary_key=True))
DIALECTS: Final = ("sqlite", "postgresql")
FILE_NAME: Final = "astargate.db"
BUSY_SECONDS: Final = 15
"""How long a writer waits for another before SQLite gives up."""
POOL_SECONDS: Final = 15
"""How long a thread waits for a connection that others use."""
HANG_SECONDS: Final = 3.0
"""A transaction that fails after so long has met a database that hangs, not one that refuses."""
PAUSE_SECONDS: Final = 5.0
"""After that, transactions fail at once for so long: else every caller would wait for the same silence."""
_CREATION_LOCK: Final = 0x61737461
"""Key of the PostgreSQL advisory lock under which one server at a time creates or migrates."""
_WRITES: Final = "astargate_writes"
NOW_BY_DIALECT: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())::double precision",
}


class Database:
    """An open database. Every method may be called from any thread."""

    def __init__(self, engine: Engine, folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.engine = engine
        self._folder = folder
        self._failed = False
        self._hung_until = 0.0
        self.now: ColumnElement[float] = literal_column(NOW_BY_DIALECT[engine.dialect.name], Float())
        """The database's clock, in SQL."""

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads. Raises `DatabaseError` where the database cannot be reached."""
        with self._watched(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits at the end of the block and is undone where it raises."""
        writing = self.engine.execution_options(**{_WRITES: True})
        with self._watched(), writing.begin() as connection:
            yield connection

    @property
    def reachable(self) -> bool:
        """Whether the last transaction found the database there."""
        return not self._failed

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Turn a driver's errors into `DatabaseError`, and remember a database that hangs."""
        began = time.monotonic()
        if began < self._hung_until:
            raise DatabaseError("the database cannot be reached: it gave no answer a moment ago")
        try:
            with _translated():
                yield
        except DatabaseError:
            self._failed = True
            if time.monotonic() - began > HANG_SECONDS:
                self._hung_until = time.monotonic() + PAUSE_SECONDS
            raise
        self._failed = False

    def close(self) -> None:
        """Close every connection; a temporary database is gone."""
        self.engine.dispose()
        if self._folder is not None:
            self._folder.cleanup()


def storable(text: str) -> str:
    """`text` as every database can hold and compare it: PostgreSQL's knows no NUL."""
    return text.replace("\0", "\ufffd")


_FAULTS: Final = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
"""Faults of a statement. Any other error of a driver is the database's: gone, read-only, full or damaged."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _FAULTS:
        raise
    except DBAPIError as error:
        raise DatabaseError(f"the database cannot be reached: {error.orig}") from error
    except PoolTimeoutError as error:
        raise DatabaseError("the database cannot be reached: every connection to it is in use") from error


def open_database(url: str | None = None) -> Database:
    """Open (and create) the database at `url`; None: a file in the user's state folder, or whatever can be written.

    Raises `DatabaseError` that says what is wrong with the URL, the server or the file.
    """
    if url is None:
        return _default_database()
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseError(
            "the database URL cannot be read; write sqlite:///file.db or postgresql://user@host/name"
        ) from None
    return _prepared(Database(_engine(parsed)))


def state_folder() -> Path:
    """`$XDG_STATE_HOME/astargate`, by default `~/.local/state/astargate`."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "astargate"


def _default_database() -> Database:
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_database(f"sqlite:///{folder / FILE_NAME}")
    except (OSError, DatabaseError) as error:
        reason = error
    try:
        temporary = tempfile.TemporaryDirectory(prefix="astargate-", ignore_cleanup_errors=True)
        database = _prepared(Database(_engine(make_url(f"sqlite:///{temporary.name}/{FILE_NAME}")), temporary))
    except (OSError, DatabaseError):
        database = _prepared(Database(_engine(make_url("sqlite://"))))
    logger.warning(
        "jobs, horizons and audits are kept in %s and end with this process (%s); name a database that lasts with "
        "ASTARGATE_DATABASE", database.place, reason,
    )  # fmt: skip
    return database


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    if backend not in DIALECTS:
        raise DatabaseError(f"a database of kind {backend!r} is not supported; take one of {', '.join(DIALECTS)}")
    if backend == "postgresql":
        return _postgres_engine(url)
    _make_private(url)
    options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}
    if url.database in {None, "", ":memory:"}:  # it lives in its one connection, which threads take in turns
        options |= {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": POOL_SECONDS}
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _make_private(url: URL) -> None:
    """A database file holds prompts: it is made for its owner alone, and one that everybody may read is closed to them.

    SQLite gives the files beside it the same mode.
    """
    name = url.database
    if name is None or name in {"", ":memory:"} or name.startswith("file:"):
        return
    path = Path(name)
    with suppress(OSError):  # what is wrong with the place is for SQLite to say
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            mode = each.stat().st_mode
            if mode & 0o007:
                each.chmod(stat.S_IMODE(mode) & ~0o007)


def _postgres_engine(url: URL) -> Engine:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        from service.storage import postgres  # noqa: PLC0415  (an optional package)

        arguments = {name: value for name, value in postgres.CONNECT_ARGUMENTS.items() if name not in url.query}
        engine = create_engine(url, pool_pre_ping=True, pool_timeout=POOL_SECONDS, connect_args=arguments)
    except ImportError:
        raise DatabaseError("PostgreSQL needs psycopg: pip install 'astargate[postgres]'") from None

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, record: object, arguments: tuple[Any, ...], parameters: dict[str, Any]) -> object:
        return postgres.connect(arguments, parameters)

    return engine


def _on_sqlite_connect(connection: Any, record: object) -> None:
    """Let SQLAlchemy begin transactions itself; readers and one writer at a time side by side."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _on_sqlite_begin(connection: Connection) -> None:
    # A transaction that reads first and writes later could find its snapshot out of date: writers lock at once.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepared(database: Database) -> Database:
    """`database` with its tables, at this version."""
    try:
        with database.write() as connection:
            if connection.dialect.name == "postgresql":
                with _patient(connection):
                    connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
                    _migrate(connection)
            else:
                _migrate(connection)
    except DatabaseError as error:
        database.close()
        raise DatabaseError(f"{database.place}: {error}") from error.__cause__
    except SQLAlchemyError as error:
        database.close()
        raise DatabaseError(f"{database.place}: {error}") from error
    return database


@contextmanager
def _patient(connection: Connection) -> Iterator[None]:
    """Statements of the block may take long: they wait for another server's migration, or are one."""
    from service.storage import postgres  # noqa: PLC0415  (an optional package)

    driver = connection.connection.driver_connection
    assert isinstance(driver, postgres.BoundedConnection)  # `_postgres_engine` makes no other
    connection.execute(text(f"SET LOCAL statement_timeout = {int(1000 * postgres.PREPARE_SECONDS)}"))
    driver.answer_seconds = postgres.PREPARE_SECONDS
    try:
        yield
    finally:
        driver.answer_seconds = postgres.ANSWER_SECONDS


def _migrate(connection: Connection) -> None:
    present = None
    if inspect(connection).has_table(SCHEMA.name):
        present = connection.scalar(select(func.max(SCHEMA.c.version)))
    if present is not None and present > SCHEMA_VERSION:
        raise DatabaseError(f"it was written by a newer version (schema {present}, this one knows {SCHEMA_VERSION})")
    for version in range((present or SCHEMA_VERSION) + 1, SCHEMA_VERSION + 1):
        MIGRATIONS[version](connection)
    METADATA.create_all(connection)
    if present != SCHEMA_VERSION:
        connection.execute(text(f"DELETE FROM {SCHEMA.name}"))
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))
