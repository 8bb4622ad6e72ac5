"""POST /generate: one request, one JSON answer or one stream of events."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from decoding.engine.handle import DecodingResult
from service.backend.backend import Backend
from service.generation import replies
from service.generation.prepare import Prepared, prepare
from service.http.auth import caller_of, require
from service.http.body import BoundedRoute
from service.lifecycle import Service
from service.routes import examples
from service.routes.common import ServiceDep, arrival, decoded, understood
from service.schemas.generate import BriefResponse, GenerateRequest, GenerateResponse
from service.streaming import EventStream

router = APIRouter(tags=["generate"], route_class=BoundedRoute)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": GenerateResponse | BriefResponse,
        "description": "The samples, as BriefResponse with detail 'brief'; with stream: true the events step, handoff, "
        "sample, done (or error) as they come",
        "content": {"text/event-stream": {"schema": examples.EVENT, "example": examples.STREAM}},
    },
    **examples.errors(400, 404, 413, 422, 429, 500, 503, 504),
}


@router.post(
    "/generate", response_model=GenerateResponse, responses=_RESPONSES, summary="Decode texts under a constraint"
)
@router.post("/v1/generate", response_model=GenerateResponse, responses=_RESPONSES, include_in_schema=False)
async def generate(
    request: Request,
    service: ServiceDep,
    body: Annotated[GenerateRequest, Body(openapi_examples=examples.requests())],
) -> Response:
    """Decode `n` samples. `forward_evaluations` counts rows through the model: a guided step costs 2, a base step 1."""
    if body.audit_share is not None:
        require(request, "admin", "audit_share")
    backend = service.admit()
    recorded = service.jobs.horizons_of(caller_of(request))
    arrived = arrival(request)
    work = partial(prepare, body, backend.model, service.shadow.gates, service.settings, recorded, arrived=arrived)
    prepared = await understood(request, service, body.policy, body.deadline_s, work)
    if body.stream:
        return EventStream(service, backend, prepared, request.scope["path"])
    return await decoded(request, service, prepared, partial(_content, service, backend, prepared))


def _content(service: Service, backend: Backend, prepared: Prepared, outcomes: list[DecodingResult]) -> bytes:
    """The answer as JSON; worker thread."""
    answer = replies.response(prepared, outcomes, backend.model)
    service.metrics.judged(prepared, answer.samples)
    return replies.written(answer, prepared.form).encode()
