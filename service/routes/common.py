"""What routes share: access to the service, and the plain JSON answer of a decoded request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.responses import Response

from decoding.engine.handle import DecodingResult
from service.generation.prepare import Prepared, reads_database
from service.http.disconnect import unless_gone, until
from service.lifecycle import Service
from service.schemas.policy import PolicyRequest
from service.workers import LARGE_BODY, WorkerLane

T = TypeVar("T")


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


def arrival(request: Request) -> float:
    """When the request arrived, a value of `time.monotonic`."""
    return float(request.scope["state"]["arrived"])


async def understood(
    request: Request,
    service: Service,
    policy: PolicyRequest | None,
    deadline_s: float | None,
    prepare: Callable[[], T],
) -> T:
    """What `prepare` makes of a request on a worker thread, in the lane for its body and its policy.

    Nothing is prepared for a client that is gone; the deadline counts from the request's arrival.
    """
    lane = WorkerLane.PREPARE
    if reads_database(policy):
        lane = WorkerLane.LOOKUP
    elif len(await request.body()) > LARGE_BODY:
        lane = WorkerLane.LARGE
    seconds = service.settings.default_deadline if deadline_s is None else deadline_s
    async with until(None if seconds is None else arrival(request) + seconds):
        return await unless_gone(request.receive, service.workers.run(lane, prepare))


async def decoded(
    request: Request, service: Service, prepared: Prepared, content: Callable[[list[DecodingResult]], bytes]
) -> Response:
    """The plain answer; `content` writes its JSON on a worker thread. Nothing decodes for a client that is gone."""

    async def decode() -> bytes:
        async with service.generation(prepared, request.scope["path"]) as generation:
            return await service.write(partial(content, await generation.outcomes()))

    return Response(await unless_gone(request.receive, decode()), media_type="application/json")
