"""Compares HTTP servers on what a stranger does and on speed: docs/results/http-servers.md.

`pip install hypercorn granian httptools zttp`, then `python -m tests.service.load.http_servers`. Each runs the same
small application in one process, with its time limits set to `SECONDS` where it has them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.service.process import ROOT, free_port

SECONDS: Final = 3
PATIENCE: Final = 3.0 * SECONDS
FILES, CROWD = 128, 140
EVENTS: Final = 64
APP: Final = "tests.service.load.http_servers:application"
PAGE: Final = ROOT / "docs" / "results" / "http-servers.md"
UVICORN: Final = "-m uvicorn {app} --port {port} --no-access-log --log-level warning --ws auto --http "
SERVERS: Final[Mapping[str, tuple[str, str]]] = {
    "this server's (uvicorn, h11)": ("uvicorn", "-m tests.service.load.http_servers --serve {port}"),
    "uvicorn, h11": ("uvicorn", UVICORN + "h11"),
    "uvicorn, httptools": ("httptools", UVICORN + "httptools"),
    "uvicorn, zttp": ("zttp", UVICORN + "zttp"),
    "hypercorn": ("hypercorn", f"-m hypercorn {{app}} --bind 127.0.0.1:{{port}} --read-timeout {SECONDS}"),
    "granian": (
        "granian",
        "-m granian {app} --interface asgi --port {port} --no-ws --log-level warning "
        f"--http1-header-read-timeout {SECONDS * 1000}",
    ),
}
"""Distribution and command of each."""
Ask = Callable[["Server"], str]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body, or with a stream of events at /stream."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    stream = scope["path"] == "/stream"
    body = b"%d" % length
    headers = [] if stream else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain"), *headers]})
    for _ in range(EVENTS if stream else 0):
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": body})


def serve(port: int) -> None:
    """The application behind this server's own limits."""
    import uvicorn

    from service.http.body import BodyLimit
    from service.http.connections import ACCEPTED_AT_ONCE, ConnectionLimits, Connections

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limits = ConnectionLimits(max(16, min(1000, files - 100)), 65_536, SECONDS, SECONDS, SECONDS)
    connections: Any = Connections(limits).protocol
    bounded: Any = BodyLimit(application, 1 << 20, SECONDS)
    uvicorn.run(bounded, http=connections, ws="none", loop="asyncio", port=port, backlog=ACCEPTED_AT_ONCE,
                access_log=False, log_level="warning")  # fmt: skip


class Server:
    """One of `SERVERS` in a process of its own."""

    def __init__(self, command: str, files: int = 0) -> None:
        self.port = free_port()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        arguments = [sys.executable, *command.format(app=APP, port=self.port).split()]
        if files:
            arguments = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *arguments]
        self.process = subprocess.Popen(arguments, cwd=ROOT, stdout=self.log, stderr=self.log)
        for _ in range(300):
            with contextlib.suppress(OSError), self.connect():
                return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"{command} does not start")

    def connect(self, seconds: float = PATIENCE) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), seconds)

    def processes(self) -> list[int]:
        """The process and its children."""
        found = [self.process.pid]
        for each in found:
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        return found

    def memory(self) -> int:
        pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in self.processes())
        return pages * resource.getpagesize()

    def cpu_seconds(self) -> float:
        fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in self.processes()]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        for each in reversed(self.processes()):
            with contextlib.suppress(OSError):
                os.kill(each, 9)
        self.process.wait()
        self.log.close()


def answer(connection: socket.socket, seconds: float = PATIENCE) -> bytes | None:
    """All that comes until the connection is closed; None where it stays open and silent."""
    parts, end = [], time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            connection.settimeout(max(0.01, end - time.monotonic()))
            part = connection.recv(65_536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except TimeoutError:
        return b"".join(parts) or None
    except ConnectionError:
        return b"".join(parts)
    return b"".join(parts) or None


def asked(server: Server, request: bytes, seconds: float = PATIENCE) -> bytes | None:
    with server.connect() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(request)
        return answer(connection, seconds)
    return b""


def status(text: bytes | None) -> str:
    return "no answer" if text is None else text[9:12].decode() or "closed"


def large_headers(server: Server) -> str:
    before, held = server.memory(), []
    for _ in range(4):
        held.append(server.connect())
        with contextlib.suppress(ConnectionError):
            held[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (16 << 20))
    grown = (server.memory() - before) >> 20
    for connection in held:
        connection.close()
    return f"{grown} MiB kept" if grown >= 16 else "refused"


def silence(request: bytes) -> Ask:
    def ask(server: Server) -> str:
        with server.connect() as connection:
            connection.sendall(request)
            text = answer(connection)
        return "stays open" if text is None else "closed" if not text else status(text)

    return ask


def h2c(server: Server) -> str:
    """As the client of the JDK asks."""
    head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    text = asked(server, f"{head}HTTP2-Settings: AAMAAABkAAQ\r\nContent-Length: 5\r\n\r\nhello".encode(), SECONDS)
    if text is None or b" 200 " not in text[:16]:
        return status(text)
    return "body kept" if text.rpartition(b"\r\n\r\n")[2].startswith(b"5") else "body lost"


def websocket(server: Server) -> str:
    head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    return status(asked(server, f"{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode(), SECONDS))


def old_client(server: Server) -> str:
    text = asked(server, b"GET /stream HTTP/1.0\r\n\r\n") or b""
    return "chunked" if b"chunked" in text.lower().partition(b"\r\n\r\n")[0] else "plain"


def two_lengths(server: Server) -> str:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    text = asked(server, head + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") or b""
    return status(text) if text.count(b"HTTP/1.1 ") < 2 else f"{text.count(b'HTTP/1.1 ')} answers"


def crowd(server: Server) -> str:
    held = []
    for _ in range(CROWD):
        with contextlib.suppress(OSError):
            held.append(server.connect(1))
    answers = [status(asked(server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 2)) for _ in range(5)]
    for connection in held:
        connection.close()
    return f"{answers.count('200')} of 5 answered"


PROBES: Final[Mapping[str, Ask]] = {
    "4 x 16 MiB of headers": large_headers,
    "nothing is sent": silence(b""),
    "headers never end": silence(b"GET / HTTP/1.1\r\nX: "),
    "the body never ends": silence(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"),
    "`Upgrade: h2c` with a body": h2c,
    "`Upgrade: websocket`": websocket,
    "HTTP/1.0 stream": old_client,
    "`Content-Length` and `Transfer-Encoding`, a request behind": two_lengths,
}


async def _load(port: int, path: str, seconds: float, connections: int) -> int:
    """How many requests were answered."""
    end, request = time.monotonic() + seconds, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    last = b"0\r\n\r\n" if path == "/stream" else b"\r\n\r\n0"

    async def client() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        done = 0
        while time.monotonic() < end:
            writer.write(request)
            await reader.readuntil(last)
            done += 1
        writer.close()
        return done

    return sum(await asyncio.gather(*(client() for _ in range(connections))))


def speed(server: Server, path: str) -> str:
    """Median of three loads of 16 connections."""
    rates, costs = [], []
    for _ in range(3):
        before, began = server.cpu_seconds(), time.monotonic()
        done = asyncio.run(_load(server.port, path, 3.0, 16))
        rates.append(done / (time.monotonic() - began))
        costs.append((server.cpu_seconds() - before) / done)
    return f"{statistics.median(rates):.0f}/s, {1e6 * statistics.median(costs):.0f} us"


def measured(command: str) -> list[str]:
    """The cells of one server."""
    server = Server(command)
    try:
        cells = [probe(server) for probe in PROBES.values()]
        cells += [speed(server, path) for path in ("/", "/stream")]
    finally:
        server.stop()
    crowded = Server(command, FILES)
    try:
        cells.append(crowd(crowded))
    finally:
        crowded.stop()
    return cells


def page(columns: Mapping[str, Sequence[str]]) -> str:
    rows = [*PROBES, "small answers", f"streams of {EVENTS} events", f"{CROWD} idle connections, {FILES} files"]
    head = [f"{name} {version(SERVERS[name][0])}" for name in columns]
    lines = [f"| | {' | '.join(head)} |", f"|---{'|---' * len(head)}|"]
    lines += [f"| {row} | {' | '.join(cells[index] for cells in columns.values())} |" for index, row in enumerate(rows)]
    table = "\n".join(lines)
    return f"""# HTTP servers

Written by `python -m tests.service.load.http_servers`. Each server runs the same small application in one process, with
a time limit of {SECONDS} s where it has one; a probe waits {PATIENCE:g} s. Speed, and processor time of a request,
are medians of three runs with 16 connections, on a machine that did other work too: only their ratios mean anything.
[server.md](../server.md#why-uvicorn-over-h11) says what follows.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    columns = {}
    for name, (_, command) in SERVERS.items():
        print(name, flush=True)
        columns[name] = measured(command)
        print(*columns[name], sep="\n", flush=True)
    PAGE.write_text(page(columns), encoding="utf-8")


if __name__ == "__main__":
    main()
