"""The steps that lead to an answer, as plans without input or output: both clients share them.

A `Plan` yields what it needs next (`Send` a request, `Wait` some seconds), gets what came of it, returns the result.
`Client` and `AsyncClient` carry it out, each in its way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from astargate_client.transport import errors
from astargate_client.transport.retries import Retries

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    """Raises `ValueError` (pydantic's are) where the answer is not what it should be."""
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    repeatable: bool = True
    """Whether running it twice does no harm."""
    stream: bool = False
    """Whether the answer's body is left unread."""
    timeout: float | httpx.Timeout | None = None
    """The client's where None."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this; what comes back is the answer, read unless it is a successful stream."""

    call: Call[Any]
    request_id: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep."""

    seconds: float


Plan = Generator[Send | Wait, httpx.Response | None, T]


def new_request_id() -> str:
    return f"req-{uuid.uuid4().hex}"


def exchange(call: Call[T], retries: Retries) -> Plan[T]:
    """Send `call`, again where `retries` allows it; returns what it reads from the answer.

    Raises the `AstargateError` of the last attempt. All attempts have one request id.
    """
    request_id = new_request_id()
    attempt = 0
    while True:
        outcome = yield from _attempt(call, request_id)
        if not isinstance(outcome, errors.AstargateError):
            return outcome
        pause = retries.pause(attempt, outcome, repeatable=call.repeatable)
        if pause is None:
            raise outcome
        yield Wait(pause)
        attempt += 1


def _attempt(call: Call[T], request_id: str) -> Plan[T | errors.AstargateError]:
    try:
        response = yield Send(call, request_id)
    except httpx.TransportError as error:
        failure = errors.from_transport(error, request_id)
        failure.__cause__ = error
        return failure
    if response is None:
        raise RuntimeError("a Send was answered without a response")
    if response.is_error:
        return errors.from_response(response, request_id)
    try:
        return call.read(response)
    except ValueError as error:
        message = f"the answer to {call.method} {call.path} cannot be read; is this an astargate server? {error}"
        raise errors.UnreadableAnswerError(message, request_id=request_id) from error
