from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from service.metrics import definitions as define
from tests.deploy import load
from tests.deploy.prometheus import PrometheusServer, watched
from tests.service.process import ServerProcess

REQUESTS = 30


@dataclass(frozen=True)
class Observed:
    """A server that has seen every kind of request, the Prometheus that watched it, and what clients were answered."""

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

    @property
    def samples(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(policy, family, sample) of every answer."""
        return [
            (answer["policy"]["preset"], define.family_label(answer["family"]), sample)
            for answer in self.answers
            for sample in answer["samples"]
        ]


@pytest.fixture(scope="session")
def observed(tmp_path_factory):
    with watched(tmp_path_factory.mktemp("observed"), *load.OPTIONS) as (server, prometheus):
        before = prometheus.last_scrape()
        answers = load.mixed(server, REQUESTS)
        answers += load.until_skipped(server)
        answers += load.until_repaired(server)
        load.refused(server)
        load.committor(server)
        load.audited(server)
        server.wait_idle()
        prometheus.wait_scraped()
        yield Observed(server, prometheus, answers, prometheus.last_scrape(), before)
