"""A database that hangs: its processes are stopped, its connections stay open. Only what needs it waits, and ends."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import text

from service.storage import postgres as postgres_driver
from service.storage.database import open_database
from service.storage.errors import DatabaseError
from tests.service.faults import impatient_database
from tests.service.postgres import PostgresServer
from tests.service.process import ServerProcess, error_of, wait_until

SMALL = {"prompt": "a dog", "gen_length": 8, "steps": 4, "policy": {"preset": "base"}}
KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
RECORDED = {"constraint": KEYWORDS, "gen_length": 12, "policy": {"gate": {"source": "recorded"}}}
JOB = {"constraint": KEYWORDS, "state": {"fraction": 0.5}, "gen_length": 12, "rollouts": 4}
PATIENCE = 120.0
"""Seconds; without limits on the wait none of these requests would ever be answered."""


def test_a_hanging_database_stalls_nobody_and_no_shutdown(spawn, postgres: PostgresServer) -> None:
    process: ServerProcess = spawn(
        "--database", postgres.create(), "--drain-seconds", "1", fault=impatient_database
    ).wait_for(200)
    health = process.client.get("/health/ready").json()
    assert health["database"] == "reachable"
    with postgres.frozen(), ThreadPoolExecutor(8) as pool:
        recorded = [
            pool.submit(httpx.post, f"{process.url}/generate", json=RECORDED, timeout=PATIENCE) for _ in range(6)
        ]
        time.sleep(0.5)
        began = time.monotonic()
        assert httpx.post(f"{process.url}/generate", json=SMALL, timeout=PATIENCE).status_code == 200
        assert time.monotonic() - began < postgres_driver.ANSWER_SECONDS / 2, "a request waited for the database"

        def database() -> str:
            reply = process.client.get("/health/ready")
            assert reply.status_code == 200  # decoding goes on
            return str(reply.json()["database"])

        wait_until(database, lambda state: state == "unreachable", "a readiness that knows")
        for each in recorded:
            reply = each.result()
            assert reply.status_code == 200
            assert "cannot be read" in reply.json()["samples"][0]["gate"]["fallback_reason"]
        refused = process.client.post("/committor", json=JOB, timeout=PATIENCE)
        assert (refused.status_code, error_of(refused)["code"]) == (503, "database_unavailable")
        assert process.stop(signal.SIGTERM, timeout=PATIENCE) == 0


def test_a_database_that_goes_on_is_used_again(spawn, postgres: PostgresServer) -> None:
    process: ServerProcess = spawn("--database", postgres.create(), fault=impatient_database).wait_for(200)
    with postgres.frozen():
        refused = process.client.get("/committor", timeout=PATIENCE)
        assert (refused.status_code, error_of(refused)["code"]) == (503, "database_unavailable")
    wait_until(
        lambda: process.client.post("/committor", json=JOB, timeout=PATIENCE).status_code,
        lambda status: status == 200,
        "the database",
    )
    assert process.client.get("/health/ready").json()["database"] == "reachable"


def test_a_slow_statement_is_ended(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_driver, "ANSWER_SECONDS", 0.5)
    database = open_database(postgres.create())
    try:
        with pytest.raises(DatabaseError), database.write() as connection:
            connection.execute(text("SELECT pg_sleep(60)"))
        assert not database.reachable
        with database.read() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
        assert database.reachable
    finally:
        database.close()
