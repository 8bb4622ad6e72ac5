from __future__ import annotations

import pytest

from service.storage.database import open_database
from tests.service.postgres import PostgresServer, programs, unavailable
from tests.service.process import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server in invariant mode for every test that leaves it as it was."""
    process = ServerProcess(
        tmp_path_factory.mktemp("server") / "log", "--batch-invariant", "--keep-alive-seconds", "0.05"
    )
    try:
        yield process.wait_for(200)
        assert process.process.poll() is None, process.log.read_text()
    finally:
        code = process.stop()
    assert code == 0


@pytest.fixture
def spawn(tmp_path):
    """Starts servers with options of a test's own; ends them with the test."""
    started = []

    def start(*options):
        started.append(ServerProcess(tmp_path / f"log{len(started)}", *options))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server; skipped where it is not installed, but for the whole check."""
    folder = programs()
    if folder is None:
        unavailable("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    started = PostgresServer(folder)
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'astargate.db'}"
    return request.getfixturevalue("postgres").create()


@pytest.fixture
def database(database_url):
    """An empty database of each kind, open."""
    opened = open_database(database_url)
    yield opened
    opened.close()
