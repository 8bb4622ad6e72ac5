"""What every test shares: one thread for each worker, servers that are started once, and the order of the modules."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Before torch is loaded, here and in every process that a test starts: the workers share the cores among them.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What requests leave open is as the shipped gates were measured, so that they serve them; tests of the model's own
# defaults ask for those.
os.environ["ASTARGATE_DEFAULTS"] = "paper"
# Bytecode is kept, whatever the environment says: workers and servers would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MOST_WORKERS = 8
"""Each holds a model and a server of its own."""
PROCESSES = frozenset({"server", "spawn", "postgres", "observed", "database_url"})
"""Fixtures that start processes."""

TOGETHER = ("tests/deploy/", "tests/browser/")
"""Folders whose modules share what takes long to start: they stay on one worker."""

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")  # a busy machine is no failure


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


class Scopes(LoadScopeScheduling):
    """Gives a worker a whole module, or a whole folder of `TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> Scopes | None:
    return Scopes(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long modules first where several workers share them, so that none of them begins when all else has ended."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return
    weight: Counter[str] = Counter()
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        weight[module(item)] += 10 * slow + 5 * bool(PROCESSES & set(getattr(item, "fixturenames", ())))
    items.sort(key=lambda item: (-weight[module(item)], module(item)))


def module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server in invariant mode for every test that leaves it as it was."""
    from tests.service.process import ServerProcess

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
    from tests.service.process import ServerProcess

    started = []

    def start(*options, **how):
        started.append(ServerProcess(tmp_path / f"log{len(started)}", *options, **how))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server; skipped where it is not installed, but for the whole check."""
    from tests.service.postgres import PostgresServer, programs, unavailable

    folder = programs()
    if folder is None:
        unavailable("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    started = PostgresServer(folder)
    yield started
    started.close()
