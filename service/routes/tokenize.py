"""POST /tokenize and POST /detokenize: how the served model cuts a text into tokens."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request

from decoding.models.protocol import DenoisingModel
from service.generation.job import check_model
from service.http.body import BoundedRoute
from service.http.disconnect import unless_gone
from service.http.errors import invalid
from service.routes import examples
from service.routes.common import ServiceDep
from service.schemas.tokenize import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest
from service.workers import WorkerLane

router = APIRouter(tags=["catalogue"], route_class=BoundedRoute)
_RESPONSES = examples.errors(400, 404, 413, 422, 429, 500, 503)


@router.post("/tokenize", responses=_RESPONSES, summary="A text as tokens")
@router.post("/v1/tokenize", responses=_RESPONSES, include_in_schema=False)
async def tokenize(request: Request, service: ServiceDep, body: TokenizeRequest) -> TokenizeReply:
    """Ids and pieces of a text, and how many the model takes."""
    model = service.backend.model
    work = service.workers.run(WorkerLane.LARGE, partial(_tokenized, body, model))
    return await unless_gone(request.receive, work)


@router.post("/detokenize", responses=_RESPONSES, summary="Tokens as a text")
@router.post("/v1/detokenize", responses=_RESPONSES, include_in_schema=False)
async def detokenize(request: Request, service: ServiceDep, body: DetokenizeRequest) -> DetokenizeReply:
    """The text of ids."""
    model = service.backend.model
    work = service.workers.run(WorkerLane.LARGE, partial(_detokenized, body, model))
    return await unless_gone(request.receive, work)


def _tokenized(body: TokenizeRequest, model: DenoisingModel) -> TokenizeReply:
    """Worker thread."""
    check_model(body.model, model.spec)
    codec = model.codec
    try:
        body.prompt.encode()
        ids = codec.encode_prompt(body.prompt) if body.template else codec.encode(body.prompt)
    except UnicodeEncodeError:  # JSON can hold a lone surrogate
        raise invalid("prompt", "is not valid Unicode text") from None
    except ValueError as error:
        raise invalid("prompt", f"cannot be encoded: {error}") from None
    return TokenizeReply(
        count=len(ids),
        tokens=ids,
        pieces=codec.pieces(ids),
        max_prompt=model.spec.max_prompt,
        max_canvas=model.spec.max_canvas,
    )


def _detokenized(body: DetokenizeRequest, model: DenoisingModel) -> DetokenizeReply:
    """Worker thread."""
    check_model(body.model, model.spec)
    if any(not 0 <= token < model.spec.vocab_size for token in body.tokens):
        raise invalid("tokens", f"must be ids from 0 to {model.spec.vocab_size - 1}")
    return DetokenizeReply(prompt=model.codec.decode(body.tokens))
