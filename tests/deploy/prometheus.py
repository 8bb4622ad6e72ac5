"""A real Prometheus that scrapes a real server, with the committed rules."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.service.postgres import unavailable
from tests.service.process import ROOT, ServerProcess, free_port

FOLDER = ROOT / "deploy" / "prometheus"
WAIT_SECONDS = 600


def program(name: str) -> str:
    """Path of `prometheus` or `promtool`; skips the test where it is missing, fails it in the whole check."""
    path = shutil.which(name)
    if path is None:
        unavailable(f"{name} is not installed (Debian: apt-get install prometheus)")
    return path


class PrometheusServer:
    """Prometheus with the committed configuration, but for the target and a scrape each second."""

    def __init__(self, folder: Path, target: str) -> None:
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = free_port()
        self.log = folder / "log"
        self.url = f"http://127.0.0.1:{port}"
        options = {
            "config.file": folder / "prometheus.yml",
            "storage.tsdb.path": folder / "data",
            "web.listen-address": f"127.0.0.1:{port}",
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [program("prometheus"), *(f"--{name}={value}" for name, value in options.items())],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.client = httpx.Client(base_url=self.url, timeout=600)

    def get(self, path: str, **parameters: Any) -> Any:
        """The data of an API call that must succeed."""
        reply = self.client.get(f"/api/v1/{path}", params=parameters)
        assert reply.status_code in {200, 503}, f"{parameters}: {reply.text}"
        reply.raise_for_status()
        return reply.json()["data"]

    def vector(self, expr: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Labels and values of an instant query, NaN left out."""
        moment = {} if at is None else {"time": at}
        result = self.get("query", query=expr, **moment)["result"]
        samples = [(sample["metric"], float(sample["value"][1])) for sample in result]
        return [(labels, value) for labels, value in samples if not math.isnan(value)]

    def by(self, label: str, expr: str, at: float) -> dict[str, float]:
        """Values of an instant query by one label."""
        return {labels.get(label, ""): value for labels, value in self.vector(expr, at)}

    def last_scrape(self) -> float:
        """Time of the newest sample of the service."""
        samples = self.vector("max(timestamp(astargate_build_info))")
        return samples[0][1] if samples else 0.0

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if condition():
                    return
            except (httpx.TransportError, httpx.HTTPStatusError):  # 503 while it starts
                pass
            time.sleep(0.2)
        raise AssertionError(f"{what} did not happen:\n{self.log.read_text()}")

    def wait_scraped(self) -> None:
        """Wait for a scrape that began after this call, and for the rules to have seen it."""
        now = time.time()
        self.wait(lambda: self.last_scrape() > now + 2, "a scrape")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(600)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.client.close()


@contextmanager
def watched(folder: Path, *options: str) -> Iterator[tuple[ServerProcess, PrometheusServer]]:
    """A ready server with a database of its own, and a Prometheus that has scraped it once."""
    server = ServerProcess(folder / "server.log", *options, "--database", f"sqlite:///{folder / 'astargate.db'}")
    try:
        server.wait_for(200)
        prometheus = PrometheusServer(folder, f"127.0.0.1:{server.port}")
        try:
            prometheus.wait(lambda: prometheus.last_scrape() > 0, "the first scrape")
            yield server, prometheus
        finally:
            prometheus.stop()
    finally:
        server.stop()
