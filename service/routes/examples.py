"""Examples for the API's documentation."""

from __future__ import annotations

from typing import Any, Final

from decoding.constraints import catalogue
from service.http.errors import TYPES
from service.schemas.base import ErrorReply

_KEYWORDS: Final = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
_POLICIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "policy: full_cfg": ("Guidance in every step: 2T forward evaluations", {"preset": "full_cfg"}),
    "policy: base": ("No guidance: T forward evaluations", {"preset": "base"}),
    "policy: handoff": (
        "Guidance for 30 % of the steps",
        {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.3}},
    ),
    "policy: parallel_tail": (
        "Guidance for 30 % of the steps, then 8 tokens a step",
        {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.3}, "tail_width": 8},
    ),
}
_ERRORS: Final[dict[int, tuple[str, str, str | None, str]]] = {
    400: ("The body is not JSON", "the body is not JSON: Expecting value", None, "not_json"),
    401: (
        "A server with API keys got none, or one that it does not know",
        "an API key is needed: send Authorization: Bearer KEY",
        None,
        "missing_api_key",
    ),
    403: ("The API key may not do this", "this API key lacks the scope 'use'", None, "missing_scope"),
    404: ("Nothing is at this path", "there is nothing at /nowhere; /docs lists the paths", None, "not_found"),
    405: ("The path exists, the method does not", "PUT is not allowed here", None, "method_not_allowed"),
    413: ("The body is too large", "the body is larger than 1048576 bytes", None, "body_too_large"),
    422: (
        "Well-formed but wrong; `param` names the field",
        "policy.gate.fraction must be less than or equal to 1",
        "policy.gate.fraction",
        "invalid_value",
    ),
    429: (
        "Too much work is queued; Retry-After says when to come back",
        "65520 forward evaluations are queued already (limit 65536)",
        None,
        "queue_full",
    ),
    500: ("The server failed on this request", "the server failed on this request; ...", None, "internal_error"),
    503: ("Loading or shutting down", "the model is still loading", None, "not_ready"),
    504: ("The deadline passed", "the request's deadline has passed", "deadline_s", "deadline_exceeded"),
}


STREAM: Final = """event: step
data: {"index":0,"step":0,"phase":"guided","positions":[1],"tokens":[9],"pieces":["dog"],"confidence":[0.8],"filled":[]}

event: handoff
data: {"index":0,"step":5,"fraction":0.3125,"committed_fraction":0.3125}

event: sample
data: {"index":0,"seed":7,"text":"A dog plays with a ball on the beach.","satisfied":true}

event: done
data: {"id":"gen-0","samples":[]}
"""


EVENT: Final = {
    "type": "object",
    "description": "One server-sent event; data is JSON, or [DONE].",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""Schema of each event of a stream."""


def requests() -> dict[str, Any]:
    """OpenAPI examples of a generate body: one a policy, one a constraint type."""
    examples: dict[str, Any] = {}
    for name, (summary, policy) in _POLICIES.items():
        examples[name] = {"summary": summary, "value": {"constraint": _KEYWORDS, "policy": policy, "seed": 7}}
    for entry in catalogue():
        value = {"prompt": "Write one sentence.", "constraint": entry["example"], "policy": {"preset": "full_cfg"}}
        examples[f"constraint: {entry['type']}"] = {"summary": entry["description"], "value": value}
    return examples


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of the given error statuses."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        description, message, param, code = _ERRORS[status]
        kind = TYPES.get(status, "server_error")
        body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        responses[status] = {
            "model": ErrorReply,
            "description": description,
            "content": {"application/json": {"example": body}},
        }
    return responses
