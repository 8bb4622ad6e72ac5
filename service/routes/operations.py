"""What an operator asks: /health/live (the process answers), /health/ready (it takes requests), and /metrics."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from service.routes import examples
from service.routes.common import ServiceDep
from service.schemas.base import Reply

router = APIRouter()


class Health(Reply):
    status: str
    model: str | None = None
    database: Literal["reachable", "unreachable"] | None = None
    """Whether committor jobs, measured horizons and audits can be kept and read; decoding goes on without."""


@router.get("/health/live", tags=["health"], summary="The process answers")
@router.get("/healthz", include_in_schema=False)
async def live() -> Health:
    """Always 200: the event loop is free, whatever the engine does."""
    return Health(status="live")


@router.get("/health/ready", tags=["health"], responses=examples.errors(503), summary="Requests are taken")
@router.get("/health", include_in_schema=False)
async def ready(service: ServiceDep) -> Health:
    """503 while the model loads and once the server drains."""
    model = service.open_backend().model.spec.name
    return Health(status="ready", model=model, database="reachable" if service.jobs.reachable else "unreachable")


@router.get("/metrics", tags=["operations"], summary="Prometheus metrics", response_class=Response,
            responses={200: {"content": {"text/plain": {}}}})  # fmt: skip
async def metrics(service: ServiceDep) -> Response:
    """Text exposition format; the names start with `astargate_`."""
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
