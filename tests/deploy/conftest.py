from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.deploy import load
from tests.deploy.prometheus import PrometheusServer
from tests.service.process import ServerProcess

REQUESTS = 27


@dataclass(frozen=True)
class Observed:
    """A server that has seen every kind of request, the Prometheus that watched it, and what clients were told."""

    server: ServerProcess
    prometheus: PrometheusServer
    answers: list[dict[str, Any]]
    at: float
    """Time of the last scrape, after the load."""
    scraped_before: float

    @property
    def window(self) -> str:
        """A range that holds the whole load."""
        return f"{int(self.at - self.scraped_before) + 60}s"


@pytest.fixture(scope="session")
def observed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observed")
    database = f"sqlite:///{folder / 'astargate.db'}"
    server = ServerProcess(folder / "server.log", *load.OPTIONS, "--database", database)
    prometheus = None
    try:
        server.wait_for(200)
        prometheus = PrometheusServer(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{server.port}")
        prometheus.wait(lambda: prometheus.last_scrape() > 0, "the first scrape")
        before = prometheus.last_scrape()
        answers = load.mixed(server, REQUESTS)
        answers += load.until_skipped(server)
        answers += load.until_repaired(server)
        load.refused(server)
        load.committor(server)
        server.wait_idle()
        prometheus.wait_scraped()
        yield Observed(server, prometheus, answers, prometheus.last_scrape(), before)
    finally:
        if prometheus is not None:
            prometheus.stop()
        server.stop()
