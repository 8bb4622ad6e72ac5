"""What wraps every request: an id, a limit on the body, an answer where all else failed. Plain ASGI: streams pass."""

from __future__ import annotations

import logging
import re
import time
import uuid

from opentelemetry import trace
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.errors import CLIENT_GONE, ApiError, internal
from service.http.logs import ACCESS, REQUEST_ID

logger = logging.getLogger(__name__)
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


class BodyLimit:
    """Answers 413 to a body above `limit` bytes, declared or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self.limit:
            await self._refusal()(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.limit:
                raise _TooLargeError
            return message

        try:
            await self.app(scope, counted, send)
        except _TooLargeError:
            await self._refusal()(scope, receive, send)

    def _refusal(self) -> ASGIApp:
        message = f"the body is larger than {self.limit} bytes, the most that this server takes"
        return ApiError(413, message, code="body_too_large", headers={"Connection": "close"}).response()


class _TooLargeError(BaseException):
    """Not an `Exception`: nothing on its way may take it for a malformed body."""
