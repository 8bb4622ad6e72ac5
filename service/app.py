"""Builds the application: one factory for uvicorn and for any other server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware

from service.config.settings import Settings
from service.config.version import package_version
from service.http import answers
from service.http.auth import Guard
from service.http.body import BodyLimit, Inflated
from service.http.caller_limits import CallerLimits
from service.http.middleware import AllowedHosts, HeadAsGet, RequestContext
from service.lifecycle import Service
from service.metrics.recorder import Metrics
from service.routes import (
    catalogue,
    committor,
    docs,
    examples,
    gate_audits,
    gates,
    generate,
    openai_text,
    operations,
    playground,
    tokenize,
)
from service.schemas.generate import CanvasEvent, HandoffEvent, ReopenEventReply, StepEventReply

FIRST_ERROR = 400
_DESCRIPTION = """Decodes text from masked diffusion language models under constraints, with classifier-free guidance
that ends as soon as it stops paying. Costs are counted in forward evaluations: rows through the model.
Guided logits are c + w(c - u); w = 0 is the base decoder."""


class Api(FastAPI):
    """Adds to FastAPI's document the nulls of the error examples, API keys, and the events of a stream."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        for path in document["paths"].values():
            for operation in path.values():
                for status, answer in operation["responses"].items():
                    if int(status) >= FIRST_ERROR:
                        answer["content"]["application/json"]["example"]["error"].setdefault("param", None)
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{}, {"key": []}]  # a server without keys asks for none
        for event in (
            CanvasEvent,
            StepEventReply,
            HandoffEvent,
            ReopenEventReply,
        ):  # no path returns them but inside a stream
            document["components"]["schemas"][event.__name__] = event.model_json_schema()
        return document


def _telemetry(settings: Settings) -> TelemetryConfig:
    """FastAPI's own traces, where they are wanted. Its metrics are ours already; its logs would hold requests."""
    return {
        "tracing": settings.traces,
        "operation_spans": settings.traces,
        "auto_configure": settings.traces,
        "metrics": False,
        "logs": False,
        "exclude": lambda scope: scope["path"].startswith(("/health/", "/metrics")),
    }


def build_app(settings: Settings) -> FastAPI:
    """The app; its lifespan loads the model in the background, and `/health/ready` says when it is there."""
    service = Service(settings, Metrics())
    service.metrics.watch(lambda: service.active)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(service.load())
        yield
        loading.cancel()
        await service.close()

    app = Api(
        title="astargate",
        version=package_version(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        docs_url=None,
        redoc_url=None,
        telemetry=_telemetry(settings),
    )
    app.state.service = service
    answers.install(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Inflated, limit=settings.max_body_bytes)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_seconds)
    app.add_middleware(
        Guard,
        settings=settings,
        keyring=lambda: service.keyring,
        limits=CallerLimits(settings.key_concurrency, settings.key_requests_per_minute),
        on_rejection=lambda reason: service.metrics.rejections.labels(reason).inc(),
    )
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    if settings.hosts:
        app.add_middleware(AllowedHosts, hosts=settings.hosts)
    app.add_middleware(RequestContext)
    for module in (generate, openai_text, committor, catalogue, gates, gate_audits, tokenize):
        app.include_router(module.router, responses=examples.errors(401, 403))
    for module in (operations, docs, playground):
        app.include_router(module.router)
    docs.mount(app)
    playground.mount(app)
    return app
