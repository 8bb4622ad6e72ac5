"""A real server process, and a client that crosses real sockets to it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0
"""Seconds after which something that must come is given up: only a defect takes as long, however busy the machine."""
PORTS = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.service.preloaded"])
"""Loads the server's modules once; servers begin as copies of that process. Loading them takes longer than a test."""


Fault = Callable[[Path], None]
"""Replaces a part of the server in its process; the part works until the file exists."""


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_until(look: Callable[[], T], wanted: Callable[[T], object], what: str, seconds: float = PATIENCE) -> T:
    """Look again and again until what is seen is `wanted`; that."""
    end = time.monotonic() + seconds
    while not wanted(seen := look()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} never came: {seen}")
        time.sleep(0.05)
    return seen


def fault_file(log: str | Path) -> Path:
    """While it exists, the fault of the process that writes `log` happens."""
    return Path(f"{log}.fault")


def _run(arguments: Sequence[str], environment: Mapping[str, str], log: str, fault: Fault | None) -> None:
    """`astargate` in a process that was forked, with a part of it broken."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(output, stream.fileno())
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["astargate", *arguments]
    from service.cli import main

    if fault is not None:
        fault(fault_file(log))
    main()


class Fork:
    """A forked process with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, fault: Fault | None
    ) -> None:
        self._process = FORKS.Process(target=_run, args=(arguments, environment, str(log), fault), daemon=True)
        self._process.start()
        self.pid = int(self._process.pid or 0)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("astargate", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


class ServerProcess:
    """`astargate serve` with the given options; `client` talks to it.

    `command` starts it as a user does; otherwise it is forked from a process that has loaded its modules. `fault`
    breaks a part of it, from when the file that it is given exists (`break_now`). `defaults` "paper": what a request
    leaves open is as the shipped gates were measured, so that they serve it.
    """

    def __init__(
        self, log: Path, *options: str, command: bool = False, fault: Fault | None = None, defaults: str = "paper"
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASTARGATE_")}
        environment = {
            **kept,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "ASTARGATE_DEFAULTS": defaults,
        }
        # A database of its own: never the one of the person who runs the tests.
        own = () if "--database" in options else ("--database", f"sqlite:///{log.resolve()}.db")
        arguments = ["serve", "--port", str(self.port), "--threads", "1", *own, *options]
        self.process: Fork | subprocess.Popen[bytes]
        if command:
            with log.open("wb") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "service.cli", *arguments],
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        else:
            log.touch()
            self.process = Fork(arguments, environment, log.resolve(), fault)
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def wait_for(self, status: int, path: str = "/health/ready") -> ServerProcess:
        """Wait until `path` answers with `status`."""

        def look() -> int | None:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return self.client.get(path).status_code
            except httpx.TransportError:
                return None

        wait_until(look, lambda seen: seen == status, f"{status} from {path}")
        return self

    def break_now(self) -> None:
        """Let the fault happen that the process was started with."""
        self._fault_file.touch()

    def mend_now(self) -> None:
        """End the fault."""
        self._fault_file.unlink()

    @property
    def _fault_file(self) -> Path:
        return fault_file(self.log.resolve())

    def generate(self, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The answer to a request that must succeed."""
        reply = self.client.post("/generate", json=body, **options)
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def open_request(self, body: dict[str, Any], path: str = "/generate") -> socket.socket:
        """Post a request and leave it: closing the socket is a client that goes away."""
        content = json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(content)}", "", ""]
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall("\r\n".join(head).encode() + content)
        return connection

    def cpu_seconds(self) -> float:
        """Processor time that the server has used: what its work costs, however busy the machine is."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metrics(self) -> Counter[str]:
        """Samples by name and labels."""
        text = self.client.get("/metrics").text
        return Counter({key: float(value) for key, value in re.findall(r"^(astargate_\S+) (\S+)$", text, re.MULTILINE)})

    def wait_running(self, count: int = 1) -> None:
        """Wait until the engine has begun with `count` requests."""
        running = "astargate_requests_running"
        wait_until(self.metrics, lambda seen: seen[running] >= count, f"a load of {count} requests")

    def wait_rows(self, before: Counter[str]) -> None:
        """Wait until the engine has run rows since `before`."""
        rows = total(before, "forward_rows_total")
        wait_until(lambda: total(self.metrics(), "forward_rows_total"), lambda seen: seen > rows, "a forward row")

    def wait_idle(self) -> Counter[str]:
        """Metrics once no request is left."""
        names = ("astargate_requests_running", "astargate_requests_waiting")
        return wait_until(self.metrics, lambda seen: not any(seen[name] for name in names), "an idle engine")

    def stop(self, signal_number: int = signal.SIGTERM, timeout: float = PATIENCE) -> int:
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


def error_of(reply: httpx.Response, status: int | None = None) -> dict[str, Any]:
    """The error of an answer, whose body must have the one shape; and `status`, where it is given."""
    assert status is None or reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert all(isinstance(body["error"][name], str) and body["error"][name] for name in ("message", "type", "code"))
    error: dict[str, Any] = body["error"]
    return error
