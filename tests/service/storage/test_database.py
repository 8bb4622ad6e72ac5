"""The database opens, creates its schema once, keeps its version, and says what is wrong where it cannot."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import insert, inspect, select, text, update

from service.committor.store import JobStore
from service.committor.tables import HORIZONS, JOBS, ROLLOUTS
from service.storage import database as databases
from service.storage.database import SCHEMA, open_database
from service.storage.errors import DatabaseError

ROW = {
    "key_id": "k", "status": "queued", "created": 0.0, "request": {}, "model": "m", "model_hash": "h",
    "rollouts_total": 1, "rows_estimated": 1,
}  # fmt: skip


def test_schema_is_created_once_and_kept(database_url):
    for _ in range(2):
        opened = open_database(database_url)
        with opened.read() as connection:
            assert connection.scalars(select(SCHEMA.c.version)).all() == [databases.SCHEMA_VERSION]
            assert {t.name for t in (JOBS, ROLLOUTS, HORIZONS)} <= set(inspect(connection).get_table_names())
        opened.close()


def test_servers_that_start_together_create_it_once(database_url):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: open_database(database_url), range(6)))
    with opened[0].read() as connection:
        assert connection.scalars(select(SCHEMA.c.version)).all() == [databases.SCHEMA_VERSION]
    for database in opened:
        database.close()


def test_a_newer_schema_is_refused_and_an_older_one_migrated(database_url, monkeypatch):
    open_database(database_url).close()
    now = databases.SCHEMA_VERSION
    monkeypatch.setattr(databases, "SCHEMA_VERSION", now + 2)
    steps = {now + 1: "CREATE TABLE step_two (x INTEGER)", now + 2: "ALTER TABLE step_two ADD COLUMN y INTEGER"}
    monkeypatch.setattr(
        databases, "MIGRATIONS", {v: lambda c, sql=sql: c.execute(text(sql)) for v, sql in steps.items()}
    )
    opened = open_database(database_url)
    with opened.read() as connection:
        assert {column["name"] for column in inspect(connection).get_columns("step_two")} == {"x", "y"}
        assert connection.scalars(select(SCHEMA.c.version)).all() == [now + 2]
    opened.close()
    monkeypatch.setattr(databases, "SCHEMA_VERSION", now + 1)
    with pytest.raises(DatabaseError, match=rf"newer version \(schema {now + 2}, this one knows {now + 1}\)"):
        open_database(database_url)


def test_horizons_of_version_one_keep_their_peaks_where_the_curve_is_known(database_url):
    """q0 of the job that is still there is highest at steps 2 and 4; nobody knows what the other's was."""
    opened = open_database(database_url)
    curve = [{"step": step, "q0": {"estimate": rate}} for step, rate in ((1, 0.0), (2, 0.5), (4, 0.5), (5, 0.25))]
    jobs = [("job", {"points": curve}), ("unfinished", None)]
    horizon = {
        "key_id": "k", "subject": "s", "model_hash": "h", "regime": {}, "prompt": "p", "constraint_spec": {},
        "step": 2, "handoff_fate": "handoff", "rollouts": 2, "measured": 0.0,
    }  # fmt: skip
    with opened.write() as connection:
        for name, result in jobs:
            connection.execute(insert(JOBS).values(id=name, result=result, **ROW))
        for name in ("job", "unfinished", "purged"):
            connection.execute(insert(HORIZONS).values(id=f"hor-{name}", setting=name, job_id=name, **horizon))
        connection.execute(text("ALTER TABLE measured_horizons DROP COLUMN peak"))
        connection.execute(update(SCHEMA).values(version=1))
    opened.close()
    opened = open_database(database_url)
    with opened.read() as connection:
        assert connection.scalars(select(SCHEMA.c.version)).all() == [databases.SCHEMA_VERSION]
        peaks = dict(connection.execute(select(HORIZONS.c.job_id, HORIZONS.c.peak)).all())
    assert peaks == {"job": 4, "unfinished": None, "purged": None}
    opened.close()


def test_its_clock_is_the_time(database_url):
    opened = open_database(database_url)
    with opened.read() as connection:
        assert connection.scalar(select(opened.now)) == pytest.approx(time.time(), abs=60)
    opened.close()


def test_a_block_that_raises_leaves_nothing(database_url):
    opened = open_database(database_url)

    def write():
        with opened.write() as connection:
            connection.execute(insert(JOBS).values(id="a", **ROW))
            raise KeyError("a")

    with pytest.raises(KeyError):
        write()
    with opened.read() as connection:
        assert connection.execute(select(JOBS.c.id)).all() == []
    opened.close()


def test_writers_at_once_wait_for_each_other(database_url):
    """No "database is locked", no lost update."""
    opened = open_database(database_url)
    with opened.write() as connection:
        connection.execute(insert(JOBS).values(id="a", **ROW))

    def count(_):
        for _ in range(20):
            with opened.write() as connection:
                connection.execute(update(JOBS).values(rows_done=JOBS.c.rows_done + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    with opened.read() as connection:
        assert connection.scalar(select(JOBS.c.rows_done)) == 80
    opened.close()


def test_no_database_named_is_a_file_in_the_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    opened = open_database()
    assert (tmp_path / "state" / "astargate" / databases.FILE_NAME).is_file()
    opened.close()


@pytest.mark.parametrize("temporary", [True, False], ids=["temporary-file", "memory"])
def test_where_nothing_can_be_written_it_lasts_as_long_as_the_process(tmp_path, monkeypatch, caplog, temporary):
    """A file where a folder must be stands for a read-only place: it stops root too."""
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    monkeypatch.setattr(databases.tempfile, "tempdir", str(tmp_path if temporary else blocked))
    with caplog.at_level(logging.WARNING):
        opened = open_database()
    assert "ASTARGATE_DATABASE" in caplog.text
    assert ("memory" in opened.place or opened.place == "sqlite://") is not temporary

    def add(index):
        with opened.write() as connection:
            connection.execute(insert(JOBS).values(id=str(index), **ROW))

    threads = [threading.Thread(target=add, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened.read() as connection:
        assert len(connection.execute(select(JOBS.c.id)).all()) == 8
    opened.close()
    assert not list(tmp_path.glob("astargate-*"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://localhost/a", "not supported"),
        ("sqlite:////nowhere/at/all/a.db", "unable to open"),
        ("postgresql://nobody:secret@127.0.0.1:1/a", "cannot be reached"),
    ],
)
def test_what_cannot_be_opened_is_explained(url, message):
    with pytest.raises(DatabaseError, match=message) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_a_database_that_became_read_only_is_named_as_such(postgres):
    """After a failover PostgreSQL answers with another kind of error than where it is gone."""
    url = postgres.create()
    store = JobStore(open_database(url), "one", 1.0)
    name = url.rsplit("/", 1)[1]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store.database.engine.dispose()
    with pytest.raises(DatabaseError, match="read-only"):
        store.claim("model")
    store.database.close()


def test_a_damaged_file_is_no_fault_of_a_statement(tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    store = JobStore(database, "one", 1.0)
    database.engine.dispose()
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged" * 1000)
    with pytest.raises(DatabaseError, match="not a database"):
        store.claim("model")
    database.close()


def test_a_file_is_for_its_owner_alone(tmp_path):
    """It holds prompts. One that was made open to all, by an older version, is closed to others."""
    path = tmp_path / "jobs.db"
    before = os.umask(0o022)
    try:
        database = open_database(f"sqlite:///{path}")
        with database.write() as connection:
            connection.execute(text("CREATE TABLE prompts (one TEXT)"))
        assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {
            "jobs.db": 0o600,
            "jobs.db-wal": 0o600,
            "jobs.db-shm": 0o600,
        }
        database.close()
        path.chmod(0o664)
        open_database(f"sqlite:///{path}").close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)
