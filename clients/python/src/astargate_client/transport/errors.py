"""One tree of errors. Each knows the id of its request, by which the server's operator finds it in the log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx


class AstargateError(Exception):
    """Root of the tree."""

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(f"{message} (request {request_id})" if request_id else message)
        self.message = message
        self.request_id = request_id


class ConnectionFailedError(AstargateError):
    """No answer: the server cannot be reached, or the connection broke."""

    def __init__(self, message: str, *, request_id: str | None = None, sent: bool = True) -> None:
        super().__init__(message, request_id=request_id)
        self.sent = sent
        """Whether the server may have seen the request."""


class TimedOutError(ConnectionFailedError):
    """No answer within the client's timeout."""


class StreamBrokenError(ConnectionFailedError):
    """A stream that ended without its last event; it is never begun again by itself."""


class UnreadableAnswerError(AstargateError):
    """An answer that this client cannot read: not an astargate server, or one of another age."""


class StatusError(AstargateError):
    """The server refused, or failed; in a stream, its `error` event."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.status = status
        """HTTP status; None where an event of a stream brought the error."""
        self.type = type
        self.param = param
        """Dotted path of the field at fault, such as `policy.gate.fraction`."""
        self.code = code
        self.retry_after = retry_after
        """Seconds after which the server asks to try again."""


class InvalidRequestError(StatusError):
    """400, 413, 422: something in the request is wrong; `param` names the field."""


class AuthenticationError(StatusError):
    """401: the key is missing or unknown."""


class PermissionDeniedError(StatusError):
    """403: the key may not do this."""


class NotFoundError(StatusError):
    """404: nothing is there, or not for this key."""


class ConflictError(StatusError):
    """409: not in this state."""


class OverloadedError(StatusError):
    """429: too much work, or too many requests of this key; `retry_after` says when to come back."""


class ServerError(StatusError):
    """5xx: the server failed."""


class UnavailableError(ServerError):
    """502, 503: loading, or shutting down."""


class DeadlineError(ServerError):
    """504: `deadline_s` has passed."""


_BY_STATUS: Final[Mapping[int, type[StatusError]]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidRequestError,
    422: InvalidRequestError,
    429: OverloadedError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineError,
}
_BY_TYPE: Final[Mapping[str, type[StatusError]]] = {
    "invalid_request_error": InvalidRequestError,
    "overloaded_error": OverloadedError,
    "unavailable_error": UnavailableError,
    "timeout_error": DeadlineError,
}
"""In a stream there is no status."""


def from_response(response: httpx.Response, request_id: str) -> StatusError:
    """The error that an answer other than success stands for; its body must have been read."""
    status = response.status_code
    kind = _BY_STATUS.get(status) or (ServerError if status >= httpx.codes.INTERNAL_SERVER_ERROR else StatusError)
    detail: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError):
        body = response.json()
        detail = body["error"] if isinstance(body, dict) and isinstance(body.get("error"), dict) else {}
    message = str(detail.get("message") or f"HTTP {status} {response.reason_phrase}: {response.text[:200]}")
    return _status_error(kind, message, detail, status, response.headers.get("x-request-id", request_id),
                         retry_after(response.headers))  # fmt: skip


def from_event(body: Any, request_id: str) -> StatusError:
    """The error that an `error` event stands for."""
    detail = body.get("error", {}) if isinstance(body, dict) else {}
    kind = _BY_TYPE.get(str(detail.get("type")), ServerError)
    return _status_error(kind, str(detail.get("message") or body), detail, None, request_id, None)


def _status_error(
    kind: type[StatusError],
    message: str,
    detail: Mapping[str, Any],
    status: int | None,
    request_id: str,
    seconds: float | None,
) -> StatusError:
    fields = {name: detail[name] if isinstance(detail.get(name), str) else None for name in ("type", "param", "code")}
    return kind(message, status=status, retry_after=seconds, request_id=request_id, **fields)


def from_transport(error: httpx.TransportError, request_id: str) -> ConnectionFailedError:
    """The error that a failed connection stands for."""
    where = f"{error.request.method} {error.request.url}"
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        message = f"no answer from {where} in time ({type(error).__name__}); a longer timeout may help"
        return TimedOutError(message, request_id=request_id, sent=sent)
    message = f"the connection broke: {where}: {reason}" if sent else f"the server cannot be reached: {where}: {reason}"
    return ConnectionFailedError(message, request_id=request_id, sent=sent)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or a date; None where there is none."""
    given = headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        return max(0.0, float(given))
    with contextlib.suppress(ValueError):
        when = parsedate_to_datetime(given)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None
