"""What a connection may cost: bytes of headers, seconds of silence, a place among the open ones. HTTP/1.1 over h11.

uvicorn bounds none of these. A connection is `waiting` until it has sent a whole request; where too many are open, the
one that waits longest makes room for the next. `BoundedProtocol` overrides methods that uvicorn does not promise to
keep, so `pyproject.toml` holds uvicorn to one minor version.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import resource
import socket
import struct
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service.config.settings import Settings
from service.http.errors import ApiError
from service.http.middleware import RequestContext

logger = logging.getLogger(__name__)

SURPLUS: Final = 16
"""Connections beyond the cap that are still answered: with their health, or with a 503."""
ACCEPTED_AT_ONCE: Final = 16
"""Connections that the event loop takes in one of its rounds."""
ROUNDS: Final = 4
"""Rounds of the event loop from taking a connection to having closed another for it."""
OWN_FILES: Final = 64
"""File descriptors of the server itself: its model, its database, its log."""
FEWEST: Final = 16
"""Connections that are let in however few file descriptors there are."""
LINGER_SECONDS: Final = 2.0
"""How long a refused client may go on sending; a connection closed under it would take the answer with it."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
CHUNKS: Final = 1000
SMALLEST_CHUNK: Final = 16
"""Mean bytes of a body's chunks, from `CHUNKS` on: smaller ones cost far more to read than to send."""


Refusal = Literal["no_room", "dropped", "unread", "headers_too_large", "too_slow", "not_http"]
"""Why a connection was ended: none was free, it made room, its answers were left unread; or the code of its answer."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """See the settings of the same names; `count` is `max_connections`, or what the file descriptors allow."""

    count: int
    header_bytes: int
    header_seconds: float
    body_seconds: float
    stalled_seconds: float

    @staticmethod
    def of(settings: Settings) -> ConnectionLimits:
        """Those of `settings`. Raises the process's limit of open files to what they need, where it may."""
        spare = SURPLUS + ROUNDS * ACCEPTED_AT_ONCE + OWN_FILES
        files = _open_files(settings.max_connections + spare)
        count = min(settings.max_connections, max(FEWEST, files - spare))
        if count < settings.max_connections:
            logger.warning("%d connections at most: this process may open no more than %d files", count, files)
        return ConnectionLimits(
            count,
            settings.max_header_bytes,
            settings.header_seconds,
            settings.body_seconds,
            settings.stalled_seconds,
        )


def _open_files(wanted: int) -> int:
    """How many files this process may have open, after an attempt to make it `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The open connections of a server, and the protocol that uvicorn makes each with. Lives on the event loop."""

    def __init__(self, limits: ConnectionLimits, on_refusal: Callable[[str], object] = lambda reason: None) -> None:
        self.limits = limits
        self.on_refusal = on_refusal
        self.open: set[BoundedProtocol] = set()
        self.waiting: dict[BoundedProtocol, None] = {}
        """Those without a whole request, the longest wait first."""
        self._full_logged = -math.inf

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> BoundedProtocol:
        """The protocol of a new connection; called by uvicorn."""
        return BoundedProtocol(self, config, server_state, app_state)

    def enter(self, connection: BoundedProtocol) -> bool:
        """Whether a new connection is one of `count`; where all are taken, the longest waiting one is closed for it."""
        full = len(self.open) >= self.limits.count
        if full:
            self._log_full()
        oldest = next(iter(self.waiting), None) if full else None
        if oldest is not None:
            self.leave(oldest)
            oldest.drop()
            self.on_refusal("dropped")
        self.open.add(connection)
        self.waiting[connection] = None
        return oldest is not None or not full

    def leave(self, connection: BoundedProtocol) -> None:
        self.open.discard(connection)
        self.waiting.pop(connection, None)

    def wait(self, connection: BoundedProtocol) -> None:
        """`connection` has been answered and may send another request."""
        if connection in self.open:
            self.waiting[connection] = None

    def _log_full(self) -> None:
        if time.monotonic() - self._full_logged > 10:
            self._full_logged = time.monotonic()
            logger.warning(
                "all %d connections are taken, %d of them without a request", self.limits.count, len(self.waiting)
            )


class Reader(h11.Connection):
    """h11 with limits that it lacks: complete headers above `header_bytes`, and bodies in crumbs."""

    def __init__(self, header_bytes: int, on_event: Callable[[Any], None]) -> None:
        super().__init__(h11.SERVER, header_bytes)
        self.header_bytes = header_bytes
        self.on_event = on_event
        self.failure: h11.RemoteProtocolError | None = None
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        """The next event, also given to `on_event`. Raises `h11.RemoteProtocolError`, kept as `failure`."""
        try:
            event = super().next_event()
            self._check(event)
        except h11.RemoteProtocolError as error:
            self.failure = error
            raise
        self.on_event(event)
        return event

    def _check(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            # Fast senders have all of it read at once, before h11 asks how much of it is incomplete.
            if len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > self.header_bytes:
                raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
            self._check_framing(event)
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > CHUNKS and self._bytes < SMALLEST_CHUNK * self._chunks:
                raise h11.RemoteProtocolError("chunks too small")

    def _check_framing(self, request: h11.Request) -> None:
        """Refuse a body whose end a proxy may see elsewhere: it would take what follows for another request."""
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
            raise h11.RemoteProtocolError("a body with Transfer-Encoding has no Content-Length, and is HTTP/1.1")


class BoundedProtocol(H11Protocol):
    """One connection. An upgrade is never taken: what asks for one is answered as the plain request that it also is."""

    def __init__(
        self, connections: Connections, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.others = connections
        self.limits = connections.limits
        self.conn = self.reader = Reader(self.limits.header_bytes, self._seen)
        self.refusing = False
        """Nothing more is read of what comes in."""
        self._socket: asyncio.Transport
        self._read_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._surplus = self._lost = False
        self._silent = True

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(GentleTransport(transport, self))
        self._surplus = not self.others.enter(self)
        if self._surplus:
            self.others.on_refusal("no_room")
            if len(self.others.open) > self.limits.count + SURPLUS:
                transport.abort()
                return
            self.app = HealthOnly(self.app)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.others.leave(self)
        self._lost = self.refusing = True
        for timer in (self._read_timer, self._end_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close at once: the connection holds no whole request."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._socket.abort()

    def close_gently(self) -> None:
        """Close once everything is sent; a client that still sends may finish reading first."""
        if self._lost or self.refusing:
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._linger()
        else:
            self.refusing = True
            self._socket.close()
            self._end_timer = self.loop.call_later(self.limits.stalled_seconds, self._give_up)

    def _linger(self) -> None:
        self.refusing = True
        with suppress(OSError):  # the client has left
            self._socket.write_eof()
        self._socket.resume_reading()
        self._end_timer = self.loop.call_later(LINGER_SECONDS, self._socket.abort)

    def _give_up(self) -> None:
        """Close a connection whose client does not read, and have the system forget what waits for it."""
        self.others.on_refusal("unread")
        with suppress(OSError):
            self._socket.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._socket.abort()

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # refused already
            self._socket.abort()

    # -- what comes in ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.refusing:
            return
        self._silent = False
        if self.conn.their_state is h11.IDLE and self._read_timer is None:
            self._expect_head()
        super().data_received(data)

    def _expect_head(self) -> None:
        self._read_timer = self.loop.call_later(self.limits.header_seconds, self._head_late)

    def _head_late(self) -> None:
        self._read_timer = None
        if self._silent:
            self._socket.close()
        else:
            seconds = self.limits.header_seconds
            self._refuse(ApiError(408, f"the headers took longer than {seconds:g} seconds", code="too_slow"))

    def _seen(self, event: Any) -> None:
        """Hears of every event before uvicorn does."""
        if isinstance(event, h11.Request | h11.EndOfMessage) and self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if isinstance(event, h11.EndOfMessage) and not self.cycle.response_complete:
            self.others.waiting.pop(self, None)

    def handle_events(self) -> None:
        super().handle_events()
        if self._surplus and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        self.others.wait(self)
        self._silent = True
        if self.conn.their_state is h11.SEND_BODY:  # answered early: what still comes is not worth reading long
            self._read_timer = self.loop.call_later(LINGER_SECONDS, self._socket.abort)
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        return False

    # -- what goes out ---------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.stalled_seconds, self._give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or too much of it. Called by uvicorn."""
        failure = self.reader.failure
        if failure is not None and failure.error_status_hint == 431:
            message = f"the headers are larger than {self.limits.header_bytes} bytes, the most that this server takes"
            self._refuse(ApiError(431, message, code="headers_too_large"))
        else:
            self._refuse(ApiError(400, f"the request is not HTTP/1.1: {failure}", code="not_http"))

    def _refuse(self, error: ApiError) -> None:
        """Answer a request that has not come in whole, and close."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        identity = f"req-{uuid.uuid4().hex}"
        logger.info("refused %s: %s", identity, error)
        self.others.on_refusal(error.code)
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps(error.body).encode("ascii")
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"x-request-id", identity.encode()),
                (b"connection", b"close"),
            ]
            head = h11.Response(status_code=error.status, headers=headers, reason=b"")
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self._socket.write(self.conn.send(event) or b"")
        self._linger()


class GentleTransport(asyncio.Transport):
    """The transport that uvicorn sees: `close` lets a client that still sends read its answer first."""

    def __init__(self, transport: asyncio.Transport, connection: BoundedProtocol) -> None:
        super().__init__()
        self._transport = transport
        self._connection = connection

    def close(self) -> None:
        self._connection.close_gently()

    def is_closing(self) -> bool:
        return self._connection.refusing or self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._connection.refusing:
            self._transport.write(data)

    def abort(self) -> None:
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class HealthOnly:
    """What a connection beyond the cap gets: the server's health, or a 503."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.refusal = RequestContext(_no_room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app if scope["path"].startswith("/health") else self.refusal)(scope, receive, send)


async def _no_room(scope: Scope, receive: Receive, send: Send) -> None:
    message = "the server holds as many connections as it takes"
    headers = {"Retry-After": "1", "Connection": "close"}
    await ApiError(503, message, code="too_many_connections", headers=headers).response()(scope, receive, send)
