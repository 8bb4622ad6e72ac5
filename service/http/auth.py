"""Who may do what: every path asks for an API key (where the server has keys) but the few that are public.

The key comes as `Authorization: Bearer KEY`, or as the password of HTTP Basic, which is what a browser can send.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from service.config import keys
from service.config.keys import Caller, Keyring
from service.config.settings import Settings
from service.http.caller_limits import CallerLimits
from service.http.errors import ApiError

PUBLIC: Final = (
    "/health",
    "/healthz",
    "/health/live",
    "/health/ready",
    "/openapi.json",
    "/docs",
    "/docs/*",
    "/favicon.ico",
)
PLAYGROUND: Final = ("/", "/playground", "/playground/*")
"""The pages for a browser, and what they load; behind a key with the setting `protect_playground`."""
METRICS: Final = ("/metrics",)


def caller_of(connection: HTTPConnection) -> str:
    """The id of the key that a request was sent with; "anonymous" where this server has no keys.

    Only where the path is not public: a reader of a public page need not say who they are.
    """
    return _caller(connection).key_id


def require(connection: HTTPConnection, scope: keys.Scope, param: str | None = None) -> None:
    """Raise a 403 `ApiError` unless the caller's key has `scope`; `param` names the field that needs it."""
    if not _caller(connection).may(scope):
        what = f"{param} needs" if param else "this needs"
        raise ApiError(403, f"{what} an API key with the scope '{scope}'", code="missing_scope", param=param)


def _caller(connection: HTTPConnection) -> Caller:
    caller: Caller = connection.scope["state"]["caller"]
    return caller


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether `path` is one of `patterns`, where a final `*` stands for anything."""
    return any(path.startswith(p[:-1]) if p.endswith("*") else path == p for p in patterns)


class Guard:
    """Answers 401, 403 and the 429 of a caller's own limits before anything is read of the body."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keyring: Callable[[], Keyring],
        limits: CallerLimits,
        on_rejection: Callable[[str], None],
    ) -> None:
        self.app = app
        self.keyring = keyring
        self.limits = limits
        self.on_rejection = on_rejection
        self.public = (
            *PUBLIC,
            *(() if settings.protect_metrics else METRICS),
            *(() if settings.protect_playground else PLAYGROUND),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        try:
            caller = self._admit(Headers(scope=scope), path)
            limited = caller is not None and scope["method"] == "POST"  # reading and cancelling are never limited
            if caller is not None and limited:
                self.limits.enter(caller.key_id)
        except ApiError as refusal:
            self.on_rejection(refusal.code)
            await refusal.response()(scope, receive, send)
            return
        if caller is not None:
            scope.setdefault("state", {})["caller"] = caller
        try:
            await self.app(scope, receive, send)
        finally:
            if caller is not None and limited:
                self.limits.leave(caller.key_id)

    def _admit(self, headers: Headers, path: str) -> Caller | None:
        """The caller; None for one who need not say. Raises a 401 or 403 `ApiError`."""
        caller = identify(self.keyring(), headers)
        if matches(path, self.public):
            return caller
        if caller is None:
            raise _unauthorized(headers, browser=matches(path, PLAYGROUND))
        needed: keys.Scope = "metrics" if matches(path, METRICS) else "use"
        if not caller.may(needed):
            raise ApiError(403, f"this API key lacks the scope '{needed}'", code="missing_scope")
        return caller


def identify(keyring: Keyring, headers: Headers) -> Caller | None:
    """Whose key the headers hold: `anonymous` on a server without keys, None without a valid key on one with."""
    if keyring.anonymous is not None:
        return keyring.anonymous
    given = headers.getlist("authorization")
    only = given[0] if len(given) == 1 else ""  # of two, a proxy may check the other
    scheme, _, value = only.partition(" ")
    match scheme.lower():
        case "bearer":
            return keyring.find(value.strip())
        case "basic":
            try:
                _, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                return None
            return keyring.find(password)
    return None


def _unauthorized(headers: Headers, *, browser: bool) -> ApiError:
    given = "authorization" in headers
    message = (
        "the API key is not known to this server" if given else "an API key is needed: send Authorization: Bearer KEY"
    )
    challenge = 'Basic realm="astargate"' if browser else "Bearer"
    code = "invalid_api_key" if given else "missing_api_key"
    return ApiError(401, message, code=code, headers={"WWW-Authenticate": challenge})
