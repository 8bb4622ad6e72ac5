"""What wraps every request: an id, an answer where all else failed, HEAD, the names that are answered to.

Plain ASGI: streams pass.
"""

from __future__ import annotations

import logging
import re
import time
import uuid

from opentelemetry import trace
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.answers import CLIENT_GONE
from service.http.errors import ApiError, internal
from service.http.logs import ACCESS, REQUEST_ID

logger = logging.getLogger(__name__)
_PORT = re.compile(r":\d*$")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestContext:
    """Gives each request an id (the client's `X-Request-Id` where it is plain) and turns surprises into a 500 body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if _GIVEN_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
        scope.setdefault("state", {}).update(request_id=identity, arrived=time.monotonic())
        REQUEST_ID.set(identity)  # the server runs each request in a context of its own
        trace.get_current_span().set_attribute("astargate.request_id", identity)
        began, status = time.monotonic(), None

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = identity
            await send(message)

        try:
            await self.app(scope, receive, tagged)
        except Exception:
            logger.exception("request %s failed", identity)
            if status is not None:
                raise
            await internal(identity).response()(scope, receive, tagged)
        finally:
            _log(scope, status or CLIENT_GONE, time.monotonic() - began)


def _log(scope: Scope, status: int, seconds: float) -> None:
    """The access log's line. The query is left out: a client may put anything into it."""
    caller = scope["state"].get("caller")
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 4),
        "key_id": caller and caller.key_id,
    }
    line = "%(method)s %(path)r %(status)d %(seconds).3f s" + (" key %(key_id)s" if caller else "")
    ACCESS.info(f"{line} %(request_id)s", fields | {"request_id": scope["state"]["request_id"]}, extra=fields)


class HeadAsGet:
    """Answers HEAD as GET without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        # Routes see another scope than the log does, with the same state.
        await self.app({**scope, "method": "GET"}, receive, headers_only)


class AllowedHosts:
    """Answers 421 where the header Host has none of `hosts`: a page elsewhere may point its own name at this server.

    Health is answered under any name: probes ask by address.
    """

    def __init__(self, app: ASGIApp, hosts: list[str]) -> None:
        self.app = app
        self.hosts = tuple(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/health") or self._allows(Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        message = "the header Host names another server than this one"
        await ApiError(421, message, code="unknown_host").response()(scope, receive, send)

    def _allows(self, headers: Headers) -> bool:
        name = _PORT.sub("", headers.get("host", "").strip().lower()).rstrip(".")
        return any(name.endswith(host[1:]) if host.startswith("*") else name == host for host in self.hosts)
