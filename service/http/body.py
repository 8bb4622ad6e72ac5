"""What a request's body may be: so large, so slow, compressed by gzip alone, of so many JSON values."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.errors import ApiError, invalid

GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's name for the format of gzip."""
MAX_KEYS: Final = 5000
"""Keys of all objects of a body. Each one that is unknown costs an error of its own, on the event loop."""
MAX_CONTAINERS: Final = 10_000
"""Arrays and objects of a body: many make the interpreter look for garbage many times."""
MAX_VALUES: Final = 100_000
"""Values of all arrays and objects of a body; the longest canvas has 65,536."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string; one that never ends goes to the end, so that the search stays linear."""


class RefusedBodyError(BaseException):
    """The body is refused while it is read. Not an `Exception`: nothing on its way may take it for a malformed body."""

    def __init__(self, answer: ApiError) -> None:
        super().__init__(str(answer))
        self.answer = answer


class BodyLimit:
    """Answers 413 to a body above `limit` bytes, declared or not, and 408 to one that takes above `seconds`."""

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self.app = app
        self.limit = limit
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self.limit:
            await too_large(self.limit).response()(scope, receive, send)
            return
        read, complete = 0, False
        end = asyncio.get_running_loop().time() + self.seconds

        async def counted() -> Message:
            nonlocal read, complete
            if complete:  # all that can come is the client's departure
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                raise RefusedBodyError(_too_slow(self.seconds)) from None
            complete = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self.limit:
                raise RefusedBodyError(too_large(self.limit))
            return message

        try:
            await self.app(scope, counted, send)
        except RefusedBodyError as refusal:
            await refusal.answer.response()(scope, receive, send)


class Inflated:
    """Reads gzip as what it holds, up to `limit` bytes, and answers 415 to other encodings; below `BodyLimit`."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = Headers(scope=scope).get("content-encoding", "").strip().lower() if scope["type"] == "http" else ""
        if encoding in {"", "identity"}:
            await self.app(scope, receive, send)
            return
        if encoding not in {"gzip", "x-gzip"}:
            message = f"the body is encoded as {encoding[:40]!r}; send it plain, or as gzip"
            refusal = ApiError(415, message, code="unsupported_encoding", headers={"Accept-Encoding": "gzip"})
            await refusal.response()(scope, receive, send)
            return
        plain = [pair for pair in scope["headers"] if pair[0] not in {b"content-encoding", b"content-length"}]
        await self.app({**scope, "headers": plain}, self._inflating(receive), send)

    def _inflating(self, receive: Receive) -> Receive:
        decoder, written = zlib.decompressobj(GZIP), 0

        async def inflated() -> Message:
            nonlocal written
            message = await receive()
            if message["type"] != "http.request" or (decoder.eof and not message.get("body")):
                return message
            try:
                body = decoder.decompress(message.get("body", b""), self.limit + 1 - written)
            except zlib.error:
                raise RefusedBodyError(_not_gzip()) from None
            written += len(body)
            if written > self.limit:
                raise RefusedBodyError(too_large(self.limit))
            if decoder.unused_data or not (decoder.eof or message.get("more_body", False)):
                raise RefusedBodyError(_not_gzip())
            return {**message, "body": body}

        return inflated


class BoundedRoute(APIRoute):
    """A route whose body is refused, before it is parsed, where its values are too many to look at one by one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            if request.method == "POST":
                check_values(await request.body())
            return await handler(request)

        return bounded


def check_values(body: bytes) -> None:
    """Raises a 400 or 422 `ApiError` for what is not UTF-8, or has too many values."""
    if not _too_many(body):
        return
    if json.detect_encoding(body) not in {"utf-8", "utf-8-sig"}:
        raise ApiError(400, "the body is not JSON: it must be UTF-8", code="not_json")
    structure = _STRING.sub(b"", body)
    if what := _too_many(structure):
        if any(structure.count(first) != structure.count(last) for first, last in ((b"[", b"]"), (b"{", b"}"))):
            raise ApiError(400, "the body is not JSON: its brackets do not match", code="not_json")
        raise invalid(None, f"the body has more than {what}, the most that this server takes", "too_large")


def _too_many(text: bytes) -> str | None:
    """What `text` has too many of, were nothing of it inside a string."""
    if text.count(b":") > MAX_KEYS:
        return f"{MAX_KEYS} keys"
    if text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        return f"{MAX_CONTAINERS} arrays and objects"
    return f"{MAX_VALUES} values" if text.count(b",") > MAX_VALUES else None


def too_large(limit: int) -> ApiError:
    message = f"the body is larger than {limit} bytes, the most that this server takes"
    return ApiError(413, message, code="body_too_large", headers={"Connection": "close"})


def _too_slow(seconds: float) -> ApiError:
    message = f"the body took longer than {seconds:g} seconds"
    return ApiError(408, message, code="too_slow", headers={"Connection": "close"})


def _not_gzip() -> ApiError:
    return ApiError(400, "the body is not what its header Content-Encoding says: gzip", code="not_gzip")
