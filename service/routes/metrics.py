"""GET /metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from service.routes.common import ServiceDep

router = APIRouter(tags=["operations"])


@router.get("/metrics", summary="Prometheus metrics", response_class=Response,
            responses={200: {"content": {"text/plain": {}}}})  # fmt: skip
async def metrics(service: ServiceDep) -> Response:
    """Text exposition format; the names start with `astargate_`."""
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
