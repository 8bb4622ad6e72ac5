"""POST /v1/completions and /v1/chat/completions: OpenAI's shapes over the same decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from decoding.engine.handle import DecodingResult
from service.backend.backend import Backend
from service.generation import replies
from service.generation.prepare import Prepared
from service.http.auth import caller_of
from service.http.body import BoundedRoute
from service.lifecycle import Service
from service.openai import replies as openai_replies
from service.openai.prepare import prepare_openai
from service.openai.replies import CHAT, COMPLETION, AnswerShape, Asked
from service.openai.stream import OpenAIStream
from service.routes import examples
from service.routes.common import ServiceDep, arrival, decoded, understood
from service.schemas.openai import ChatReply, ChatRequest, CompletionReply, CompletionRequest

router = APIRouter(prefix="/v1", tags=["openai"], route_class=BoundedRoute)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The choices; with stream: true chunks of text in order, then [DONE]",
        "content": {"text/event-stream": {"schema": examples.EVENT}},
    },
    **examples.errors(400, 404, 413, 422, 429, 500, 503, 504),
}


@router.post(
    "/completions", response_model=CompletionReply, responses=_RESPONSES, summary="Texts in OpenAI's completion shape"
)
async def completions(request: Request, service: ServiceDep, body: CompletionRequest) -> Response:
    """`constraint`, `policy` and the fields after them are this server's own (`extra_body` in OpenAI's client)."""
    return await _answer(request, service, body, COMPLETION)


@router.post(
    "/chat/completions", response_model=ChatReply, responses=_RESPONSES, summary="The next turn in OpenAI's chat shape"
)
async def chat_completions(request: Request, service: ServiceDep, body: ChatRequest) -> Response:
    """Messages go through the model's own chat template; a model without roles reads all turns as one text."""
    return await _answer(request, service, body, CHAT)


async def _answer(
    request: Request, service: Service, body: CompletionRequest | ChatRequest, shape: AnswerShape
) -> Response:
    backend = service.admit()
    recorded = service.jobs.horizons_of(caller_of(request))
    model, gates, arrived = backend.model, service.shadow.gates, arrival(request)
    work = partial(prepare_openai, body, model, gates, service.settings, recorded, arrived=arrived)
    prepared = await understood(request, service, body.policy, body.deadline_s, work)
    asked = Asked.of(body)
    if body.stream:
        return OpenAIStream(service, backend, prepared, request.scope["path"], shape=shape, asked=asked)
    content = partial(_content, service, backend, prepared=prepared, shape=shape, asked=asked)
    return await decoded(request, service, prepared, content)


def _content(
    service: Service,
    backend: Backend,
    outcomes: list[DecodingResult],
    *,
    prepared: Prepared,
    shape: AnswerShape,
    asked: Asked,
) -> bytes:
    """The answer as JSON; worker thread."""
    samples = [replies.sample(prepared, index, outcome, backend.model) for index, outcome in enumerate(outcomes)]
    service.metrics.judged(prepared, samples)
    return openai_replies.response(shape, asked, prepared, samples, outcomes, backend.model).model_dump_json().encode()
