"""Connections that cost more than they ask for: large headers, silence, floods, upgrades, answers that nobody reads."""

from __future__ import annotations

import contextlib
import inspect
import json
import resource
import select
import socket
import time
import tomllib
from http.client import HTTPResponse
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.http.connections import BoundedProtocol, Refusal
from tests.service.process import ROOT, ServerProcess, wait_until

SMALL = {"prompt": "a", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
ENDLESS = {"prompt": "a", "gen_length": 64, "steps": 4096, "policy": {"preset": "full_cfg"}}
UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nUpgrade: "
FILES = 200
"""Open files of the server with few of them."""


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A server that waits for nobody, and ends well after all that was done to it."""
    options = ("--header-seconds", "1", "--body-seconds", "1", "--stalled-seconds", "1", "--drain-seconds", "1")
    process = ServerProcess(tmp_path_factory.mktemp("hasty") / "log", *options, "--max-queued-rows", "1000000")
    try:
        yield process.wait_for(200)
        log = process.log.read_text()
        assert "Traceback" not in log, log
    finally:
        code = process.stop()
    assert code == 0


def connect(process, seconds=60.0):
    return socket.create_connection(("127.0.0.1", process.port), seconds)


def read(connection) -> bytes:
    """Everything up to the end of the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def ask(process, head, body=b"", seconds=60.0) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to one request, whose connection the server must close."""
    with connect(process, seconds) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        return parts(read(connection))


def parts(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def answered(connection) -> int:
    """Status of the next answer on a connection that stays open."""
    with HTTPResponse(connection) as answer:
        answer.begin()
        answer.read()
        return answer.status


def code_of(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    """Status and code of an error, which must have the one shape and an id."""
    status, headers, body = answer
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    return status, json.loads(body)["error"]["code"]


def memory(process) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_headers_without_end_are_refused_and_not_kept(hasty):
    before, held = memory(hasty), []
    for _ in range(4):
        connection = connect(hasty)
        held.append(connection)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Long: ")
            for _ in range(16):
                connection.sendall(b"a" * (1 << 20))
    assert memory(hasty) < before + (16 << 20)
    for connection in held:
        connection.close()


@pytest.mark.parametrize("long", ["x" * 70_000, "x\r\nx-b: " * 9000, "x" * 300_000])
def test_large_headers_are_answered(hasty, long):
    answer = ask(hasty, f"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Long: {long}")
    assert code_of(answer) == (431, "headers_too_large")
    assert answer[1]["connection"] == "close"
    fitting = ask(hasty, f"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {'x' * 60_000}")
    assert fitting[0] == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", None),
        (b"GET /health", "too_slow"),
        (
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
            "too_slow",
        ),
        (b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", "not_found"),
    ],
)
def test_silence_ends_a_connection(hasty, sent, code):
    with connect(hasty) as connection:
        connection.sendall(sent)
        answer = read(connection)
    if code is None:
        assert answer == b""
    else:
        status, answered = code_of(parts(answer))
        assert (status, answered) == (404 if code == "not_found" else 408, code)


def test_a_drop_at_a_time_does_not_help(hasty):
    """Every byte comes within the limit, all of them do not."""
    with connect(hasty) as connection:
        try:
            for byte in b"GET /health/live HTTP/1.1\r\nX-Slow: " + b"a" * 300:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        except ConnectionError:
            return
        pytest.fail("every byte was taken")


def test_a_body_of_crumbs_is_refused(hasty):
    head = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    answer = ask(hasty, head, b"1\r\n \r\n" * 100_000)
    assert answer[0] == 400


def test_answers_that_nobody_reads_are_given_up(hasty):
    """The system's buffers take the first ones; the next fill the server's own."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(request * 100)
        states = select.poll()
        states.register(connection, 0)  # errors and hang-ups are always reported
        wait_until(lambda: states.poll(0), bool, "the end of the connection", 60)


def test_keep_alive_survives_a_refusal_before_the_body(hasty):
    """http clients send head and body apart; the connection of a refused request serves the next one."""
    with connect(hasty) as connection:
        for _ in range(3):
            connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
            assert answered(connection) == 404
            connection.sendall(b"{}")


def test_pipelined_requests_are_all_answered(hasty):
    request = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
    with connect(hasty) as connection:
        connection.sendall(b"".join([request + b"\r\n"] * 50 + [request + b"Connection: close\r\n\r\n"]))
        assert read(connection).count(b'"live"') == 51


def test_what_is_no_http_gets_the_one_error_body(hasty):
    for text in ("nonsense", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x", "\x16\x03\x01"):
        assert code_of(ask(hasty, text)) == (400, "not_http")


@pytest.mark.parametrize(
    ("version", "lengths"),
    [
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5"),
        ("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked"),
        ("1.1", "Content-Length: 5\r\nContent-Length: 6"),
        ("1.1", "Transfer-Encoding: chunked, chunked"),
        ("1.1", "Transfer-Encoding: gzip, chunked"),
        ("1.1", "Transfer-Encoding : chunked"),
        ("1.1", "Content-Length: +5"),
        ("1.0", "Transfer-Encoding: chunked"),
    ],
)
def test_a_body_that_ends_where_one_likes_is_refused(hasty, version, lengths):
    """What follows would be another request to one reader, and a part of the body to the next."""
    hidden = "0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connect(hasty) as connection:
        connection.sendall(f"POST /generate HTTP/{version}\r\nHost: x\r\n{lengths}\r\n\r\n{hidden}".encode())
        answer = read(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert code_of(parts(answer)) == (400, "not_http")


def test_a_header_that_stands_twice_admits_nobody(spawn, tmp_path):
    """A proxy may have checked the other one."""
    (tmp_path / "keys").write_text("someone:" + "s" * 20)
    process = spawn("--api-keys-file", str(tmp_path / "keys")).wait_for(200)
    head = "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    given = "Authorization: Bearer " + "s" * 20
    assert ask(process, head + given)[0] == 200
    assert code_of(ask(process, f"{head}{given}\r\n{given}")) == (401, "invalid_api_key")
    assert code_of(ask(process, f"{head}{given}\r\nAuthorization: Bearer x")) == (401, "invalid_api_key")
    assert code_of(ask(process, f"{head}Host: y\r\n{given}")) == (400, "not_http")


def test_connections_are_counted(hasty):
    def ended(reason):
        return hasty.metrics()[f'astargate_connections_refused_total{{reason="{reason}"}}']

    before = {reason: ended(reason) for reason in get_args(Refusal)}
    ask(hasty, "nonsense")
    ask(hasty, f"GET / HTTP/1.1\r\nHost: x\r\nX-Long: {'x' * 70_000}")
    with connect(hasty) as connection:
        connection.sendall(b"GET /health")
        read(connection)
    for reason in ("not_http", "headers_too_large", "too_slow"):
        assert ended(reason) >= before[reason] + 1, reason
    with connect(hasty), connect(hasty):
        metrics = wait_until(
            hasty.metrics, lambda seen: seen['astargate_connections{state="waiting"}'] >= 2, "two silent connections"
        )
    assert metrics["astargate_connections_limit"] >= 100
    assert metrics['astargate_connections{state="active"}'] >= 1  # the one that asks


def test_uvicorn_still_has_what_the_protocol_replaces():
    """It promises none of these; pyproject.toml holds it to the minor version that was looked at."""
    for name in ("connection_made", "connection_lost", "data_received", "handle_events", "on_response_complete",
                 "pause_writing", "resume_writing", "send_400_response", "shutdown", "_should_upgrade"):  # fmt: skip
        replaced, original = getattr(BoundedProtocol, name), getattr(H11Protocol, name)
        assert inspect.signature(replaced).parameters.keys() == inspect.signature(original).parameters.keys(), name
    source = inspect.getsource(H11Protocol)
    used = "self.conn.next_event()", "self.cycle.response_complete", "self.send_400_response(", "self._should_upgrade()"
    for text in (*used, "on_response=self.on_response_complete", "transport=self.transport"):
        assert text in source, text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    for name in ("uvicorn", "h11"):
        present = Version(version(name))
        assert present in ranges[name]
        assert Version(f"{present.major}.{present.minor + 1}") not in ranges[name]


def test_h2c_keeps_the_body(hasty):
    """The JDK's client asks for HTTP/2 beside its first request."""
    body = json.dumps(SMALL).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with connect(hasty) as connection:
        for _ in range(2):
            connection.sendall(f"{head}\r\n{UPGRADE}h2c\r\n\r\n".encode() + body)
            assert answered(connection) == 200


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 401), ("/health/live", 200), ("/nowhere", 401)])
def test_a_websocket_passes_the_guard_and_keeps_no_server_alive(spawn, path, status, tmp_path):
    (tmp_path / "keys").write_text("someone:" + "s" * 20)
    process = spawn("--api-keys-file", str(tmp_path / "keys")).wait_for(200)
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    with connect(process, 20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{UPGRADE}websocket\r\n{key}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(f"HTTP/1.1 {status}".encode())
        assert process.stop() == 0


def test_an_http_1_0_client_gets_no_chunks(hasty):
    body = json.dumps({**SMALL, "stream": True}).encode()
    head = f"POST /generate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    status, headers, answer = ask(hasty, head, body)
    assert status == 200
    assert "transfer-encoding" not in headers
    assert answer.startswith(b"event: ")
    assert b"event: done" in answer


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
def test_a_crowd_of_silent_connections_leaves_room(spawn):
    """More connections than the process may open files; those that ask for nothing go first."""
    process = spawn()
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    process.wait_for(200)
    held = []
    for _ in range(2 * FILES):
        with contextlib.suppress(OSError):
            held.append(connect(process, 5))
    for path in ("/health/live", "/v1/models", "/health/live"):
        assert ask(process, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close", seconds=10)[0] == 200
    assert process.generate(SMALL)["samples"]
    assert len(held) == 2 * FILES
    for connection in held:
        connection.close()
    log = process.log.read_text()
    assert "connections are taken" in log
    assert "Traceback" not in log
    assert process.stop() == 0


def test_where_every_connection_has_a_request_health_is_still_told(spawn):
    process = spawn("--max-connections", "5", "--drain-seconds", "0").wait_for(200)
    running = [process.open_request(ENDLESS) for _ in range(4)]
    process.wait_running(4)
    running.append(process.open_request(ENDLESS))  # in place of the client's, which asks for nothing
    time.sleep(1)
    request = "{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0"

    def refused():
        return ask(process, request.format("GET", "/v1/models"))

    answer = wait_until(refused, lambda seen: seen[0] == 503, "a full server")
    assert code_of(answer) == (503, "too_many_connections")
    assert answer[1]["retry-after"]
    assert ask(process, request.format("GET", "/health/live"))[0] == 200
    assert ask(process, request.format("GET", "/health/ready"))[0] == 200
    for connection in running:
        connection.close()
    wait_until(
        lambda: ask(process, "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close")[0],
        lambda status: status == 200,
        "a place",
    )
