from __future__ import annotations

import pytest

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
