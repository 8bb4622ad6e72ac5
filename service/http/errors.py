"""One error body for every path: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

SHOWN: Final = 100
"""Characters of a client's text that an error repeats."""
TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "method_not_allowed_error",
    408: "timeout_error",
    413: "request_too_large_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    429: "overloaded_error",
    431: "request_too_large_error",
    503: "unavailable_error",
    504: "timeout_error",
}
_KINDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "string_unicode": "is not valid Unicode text",
    "finite_number": "must be a finite number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


class ApiError(Exception):
    """An answer other than success; raised anywhere below a route."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        # ASCII: a client's lone surrogates must not break the answer that complains of them.
        content = json.dumps(self.body).encode("ascii")
        return Response(content, self.status, self.headers, media_type="application/json")


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """A 422 that names the field at fault."""
    return ApiError(422, f"{param} {message}" if param else message, code=code, param=param)


def internal(request_id: str) -> ApiError:
    """A 500 that says where to look, and nothing else."""
    return ApiError(
        500, f"the server failed on this request; its log has the details under {request_id}", code="internal_error"
    )


def draining() -> ApiError:
    return ApiError(503, "the server is shutting down and takes no new work", code="draining")


def not_ready(reason: str) -> ApiError:
    return ApiError(503, reason, code="not_ready", headers={"Retry-After": "5"})


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of pydantic's errors, in this API's words and with its path of the field."""
    first = errors[0]
    location, kind = tuple(first["loc"])[1:], str(first["type"])
    if kind == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']}", code="not_json")
    if not location and kind == "missing":
        return ApiError(400, "the body is empty; send a JSON object", code="not_json")
    param = _path(location)
    message = _KINDS.get(kind) or str(first["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)
    more = f" ({len(errors) - 1} more problems)" if len(errors) > 1 else ""
    return invalid(param or None, (message if param else f"the body {message}") + more, _code(kind))


def _code(kind: str) -> str:
    if kind == "extra_forbidden":
        return "unknown_field"
    if kind == "missing":
        return "missing_field"
    if kind == "not_supported":
        return kind
    return "wrong_type" if kind.endswith("_type") or kind == "string_unicode" else "invalid_value"


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part[:SHOWN]}" if path else part[:SHOWN]
    return path
