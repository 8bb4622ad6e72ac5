"""One error body for every path: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from starlette.responses import Response

from decoding.constraints.text.suggestion import suggestion

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

ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_completion_tokens", "max_length", "length"),
                    ("gen_length", "max_tokens")),
    **dict.fromkeys(("canvas", "canvas_length"), ("gen_length", "max_tokens")),
    **dict.fromkeys(("num_steps", "num_inference_steps", "diffusion_steps"), ("steps",)),
    **dict.fromkeys(("samples", "num_samples", "num_return_sequences", "best_of"), ("n",)),
    **dict.fromkeys(("cfg", "cfg_scale", "guidance"), ("guidance_scale", "policy.guidance_scale")),
    **{name: (f"policy.{name}",) for name in ("guidance_scale", "tail_width", "tail_rule", "order", "gate", "preset")},
    **dict.fromkeys(("keywords", "regex", "json_schema"), ("constraint",)),
    **dict.fromkeys(("random_seed", "generator"), ("seed",)),
    "messages": ("prompt",),
    "text": ("prompt",),
    "input": ("prompt",),
}  # fmt: skip
"""What other programs call a field: its names here, the first that the request has."""


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


def from_validation(errors: Sequence[Mapping[str, Any]], body: type[BaseModel] | None = None) -> ApiError:
    """The first of pydantic's errors, in this API's words and with its path of the field.

    `body` is the type that was read: its fields and their choices are what a misspelt word is compared with.
    """
    first = errors[0]
    location, kind = tuple(first["loc"])[1:], str(first["type"])
    if kind == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']}", code="not_json")
    if not location and kind == "missing":
        return ApiError(400, "the body is empty; send a JSON object", code="not_json")
    param = _path(location)
    message = _KINDS.get(kind) or str(first["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)
    message += _meant(first, kind, location, body)
    more = f" ({len(errors) - 1} more problems)" if len(errors) > 1 else ""
    return invalid(param or None, (message if param else f"the body {message}") + more, _code(kind))


def _meant(error: Mapping[str, Any], kind: str, location: Sequence[str | int], body: type[BaseModel] | None) -> str:
    """The end of a message: which field or which choice was meant; empty where none is like what was sent."""
    if kind == "literal_error":
        return suggestion(error.get("input"), re.findall(r"'([^']*)'", str(error["ctx"]["expected"])))
    if kind != "extra_forbidden" or body is None or not isinstance(name := location[-1], str):
        return ""
    fields = field_names(body, location[:-1])
    known = next((field for field in ELSEWHERE.get(name, ()) if field.partition(".")[0] in fields), None)
    return f"; did you mean '{known}'?" if known else suggestion(name, fields)


def field_names(body: type[BaseModel], location: Sequence[str | int]) -> tuple[str, ...]:
    """Names of the fields of `body`, or of what it holds at `location`; none where that is no object of ours."""
    for part in location:
        if isinstance(part, int):
            continue
        field = body.model_fields.get(part)
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            return ()
        body = inner
    return tuple(body.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model of a type such as `Model | None` or `list[Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


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
