"""A server that misbehaves on demand, over real sockets: what a healthy astargate server cannot be made to do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One answer. `hang_up` closes the connection after the body, which is then shorter than it was announced."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_up: bool = False
    silent_seconds: float = 0.0

    @property
    def content(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


HANG_UP = None
"""The connection is closed without an answer."""


def error(code: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"message": message, "type": "some_error", "param": None, "code": code}}


@dataclass
class Scripted:
    """What was asked, and where."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [one["body"] for one in self.requests]


@contextmanager
def scripted(*replies: Reply | None) -> Iterator[Scripted]:
    """A server that gives these answers in turn, then the last one again."""
    waiting, ended = list(replies), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.requests.append(
                {"path": self.path, "headers": dict(self.headers), "body": json.loads(raw) if raw else None,
                 "time": time.monotonic()}
            )  # fmt: skip
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if reply is HANG_UP:
                self.close_connection = True
                return
            if ended.wait(reply.silent_seconds):
                return
            self.send_response(reply.status)
            headers = {"content-type": "application/json", **reply.headers}
            headers["content-length"] = str(len(reply.content) + (100 if reply.hang_up else 0))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.content)
            self.close_connection = reply.hang_up

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen = Scripted(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
