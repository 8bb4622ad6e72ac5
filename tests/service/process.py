"""A real server process, and a client that crosses real sockets to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`astargate serve` with the given options; `client` talks to it."""

    def __init__(self, log: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ASTARGATE_")}
        # A database of its own: never the one of whoever runs the tests.
        own = () if "--database" in options else ("--database", f"sqlite:///{log.resolve()}.db")
        given = (*own, *options)
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(self.port), "--threads", "1", *given]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**environment, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.client = httpx.Client(base_url=self.url, timeout=120)

    def wait_for(self, status: int, path: str = "/health/ready") -> ServerProcess:
        """Wait until `path` answers with `status`."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.client.get(path).status_code == status:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"no {status} from {path}:\n{self.log.read_text()}")

    def generate(self, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The answer to a request that must succeed."""
        reply = self.client.post("/generate", json=body, **options)
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def open_request(self, body: dict[str, Any]) -> socket.socket:
        """Send a generate request and leave it: closing the socket is a client that goes away."""
        content = json.dumps(body).encode()
        head = ["POST /generate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(content)}", "", ""]
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall("\r\n".join(head).encode() + content)
        return connection

    def metrics(self) -> Counter[str]:
        """Samples by name and labels."""
        text = self.client.get("/metrics").text
        return Counter({key: float(value) for key, value in re.findall(r"^(astargate_\S+) (\S+)$", text, re.MULTILINE)})

    def wait_running(self, count: int = 1) -> None:
        """Wait until the engine has begun with `count` requests."""
        for _ in range(600):
            if self.metrics()["astargate_requests_running"] >= count:
                return
            time.sleep(0.05)
        raise AssertionError(f"fewer than {count} requests are running")

    def wait_idle(self) -> Counter[str]:
        """Metrics once no request is left."""
        for _ in range(600):
            found = self.metrics()
            if not found["astargate_requests_running"] and not found["astargate_requests_waiting"]:
                return found
            time.sleep(0.05)
        raise AssertionError("requests are still running")

    def stop(self, signal_number: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal and wait; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.client.close()


def total(samples: Counter[str], name: str, **labels: str) -> float:
    """Sum of a metric over all labels not named."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for key, value in samples.items()
        if key.partition("{")[0] == f"astargate_{name}" and all(part in key for part in wanted)
    )


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error of an answer, whose body must have the one shape."""
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert all(isinstance(body["error"][name], str) and body["error"][name] for name in ("message", "type", "code"))
    error: dict[str, Any] = body["error"]
    return error
