"""GET /health/live and /health/ready: whether the process answers, and whether it takes requests."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from service.routes import examples
from service.routes.common import ServiceDep
from service.schemas.base import Reply

router = APIRouter(tags=["health"])


class Health(Reply):
    status: str
    model: str | None = None
    database: Literal["reachable", "unreachable"] | None = None
    """Whether committor jobs, measured horizons and audits can be kept and read; decoding goes on without."""


@router.get("/health/live", summary="The process answers")
@router.get("/healthz", include_in_schema=False)
async def live() -> Health:
    """Always 200: the event loop is free, whatever the engine does."""
    return Health(status="live")


@router.get("/health/ready", responses=examples.errors(503), summary="Requests are taken")
@router.get("/health", include_in_schema=False)
async def ready(service: ServiceDep) -> Health:
    """503 while the model loads and once the server drains."""
    model = service.open_backend().model.spec.name
    return Health(status="ready", model=model, database="reachable" if service.jobs.reachable else "unreachable")
