"""Requests that the client can send: a `Call` for each, and the plan that waits until a server is ready."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from astargate_client.display.replies import (
    ConstraintList,
    GateAuditList,
    GateList,
    GenerateResponse,
    ModelList,
    PolicyList,
)
from astargate_client.transport import errors
from astargate_client.transport.exchange import Call, Plan, Wait, exchange
from astargate_client.transport.params import known
from astargate_client.transport.reply import Reply
from astargate_client.transport.retries import Retries
from astargate_client.transport.specs import plain
from astargate_client.wire import Health
from astargate_client.wire.requests import GenerateParams

R = TypeVar("R", bound=Reply)
Timeout = float | httpx.Timeout | None
DRAWN_SEEDS: Final = 2**31
EVENT_STREAM: Final = "text/event-stream"
READY_INTERVAL: Final = 0.5
"""Seconds."""
ONCE: Final = Retries(limit=0)


def reads(kind: type[R]) -> Callable[[httpx.Response], R]:
    """Reads an answer as `kind`."""

    def read(response: httpx.Response) -> R:
        reply = kind.model_validate_json(response.content)
        return reply.with_request_id(request_id_of(response))

    return read


def request_id_of(response: httpx.Response) -> str:
    """The id under which the server knows the request."""
    own: str = response.request.headers["x-request-id"]
    return str(response.headers.get("x-request-id", own))


def seeded_body(
    function: str, prompt: str, params: Mapping[str, Any], kind: type, extra_body: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The body. A seed that was left open is drawn here, so that another attempt asks for the very same texts."""
    body = {"prompt": prompt, **known(function, params, kind)}
    body.setdefault("seed", secrets.randbelow(DRAWN_SEEDS))
    filled: dict[str, Any] = plain(body | dict(extra_body or {}))
    return filled


def generate(
    prompt: str, params: GenerateParams, extra_body: Mapping[str, Any] | None, timeout: Timeout
) -> Call[GenerateResponse]:
    body = seeded_body("generate", prompt, params, GenerateParams, extra_body)
    return Call("POST", "/v1/generate", reads(GenerateResponse), body, timeout=timeout)


def stream(
    prompt: str, params: GenerateParams, extra_body: Mapping[str, Any] | None, timeout: Timeout
) -> Call[httpx.Response]:
    body = seeded_body("stream", prompt, params, GenerateParams, extra_body) | {"stream": True}
    return Call("POST", "/v1/generate", _event_stream, body, timeout=timeout, stream=True)


def _event_stream(response: httpx.Response) -> httpx.Response:
    kind = response.headers.get("content-type", "")
    if not kind.startswith(EVENT_STREAM):
        raise ValueError(f"its content type is {kind!r}, not {EVENT_STREAM}")
    return response


def models() -> Call[ModelList]:
    return Call("GET", "/v1/models", reads(ModelList))


def constraints() -> Call[ConstraintList]:
    return Call("GET", "/v1/constraints", reads(ConstraintList))


def policies() -> Call[PolicyList]:
    return Call("GET", "/v1/policies", reads(PolicyList))


def gates() -> Call[GateList]:
    return Call("GET", "/v1/gates", reads(GateList))


def gate_audit(family: str) -> Call[GateAuditList]:
    return Call("GET", f"/v1/gates/{quote(family, safe='')}/audit", reads(GateAuditList))


def ready() -> Call[Health]:
    return Call("GET", "/health/ready", reads(Health))


def until_ready(timeout: float) -> Plan[Health]:
    """Ask for readiness until it is there."""
    end = time.monotonic() + timeout
    while True:
        try:
            return (yield from exchange(ready(), ONCE))
        except (errors.ConnectionFailedError, errors.UnavailableError):
            if time.monotonic() >= end:
                raise
        yield Wait(READY_INTERVAL)
