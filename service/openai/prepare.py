"""A request in OpenAI's shape becomes decoding jobs, with errors in the words of those clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from decoding.gates.protocol import GateResolver
from decoding.models.protocol import DenoisingModel
from decoding.request.template import Blank, Template
from service.config.settings import Settings
from service.generation.job import check_model
from service.generation.prepare import Prepared, RecordedHorizons, prepare_canvas
from service.generation.request import CanvasRequest, FieldNames
from service.http.errors import invalid
from service.schemas.base import MAX_PROMPT_CHARACTERS
from service.schemas.openai import ChatRequest, CompletionRequest

_SHARED: Final = (
    *("constraint", "family", "render_constraint", "policy", "temperature", "top_p", "confidence"),
    *("steps", "block_length", "eos_fill", "suppress_eos", "defer_eos", "seed", "deadline_s"),
)
"""Fields that mean what they mean in /generate; null leaves one out."""
SUFFIX_TOKENS: Final = 16
"""Tokens in front of a suffix where the request names no number, as OpenAI has it."""
_ROLES: Final = {"developer": "system"}


def prepare_openai(
    body: CompletionRequest | ChatRequest,
    model: DenoisingModel,
    gates: GateResolver,
    settings: Settings,
    recorded: RecordedHorizons | None = None,
    *,
    arrived: float | None = None,
) -> Prepared:
    """The request's jobs; raises what `prepare_canvas` raises, naming OpenAI's field."""
    _check(body, model)
    asked = replace(_canvas_request(body), arrived=arrived)
    return prepare_canvas(asked, model, gates, settings, recorded)


def _check(body: CompletionRequest | ChatRequest, model: DenoisingModel) -> None:
    check_model(body.model, model.spec)
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "is only used with stream: true; leave it out")
    if isinstance(body, ChatRequest):
        if body.max_tokens is not None and body.max_completion_tokens is not None:
            raise invalid("max_completion_tokens", "is max_tokens by another name; give one of them")
        if body.messages[-1].role != "user":
            raise invalid("messages", "must end with the user's turn")
        if sum(len(message.content) for message in body.messages) > MAX_PROMPT_CHARACTERS:
            raise invalid("messages", f"may have {MAX_PROMPT_CHARACTERS} characters together")


def _canvas_request(body: CompletionRequest | ChatRequest) -> CanvasRequest:
    """The request with this server's names of its fields, and OpenAI's names for errors."""
    given: dict[str, Any] = {name: getattr(body, name) for name in _SHARED if getattr(body, name) is not None}
    given |= {"streams_in_blocks": bool(body.stream), "samples": body.n or 1}
    if isinstance(body, CompletionRequest) and body.suffix:
        template = Template(
            ("", body.suffix), (Blank(body.max_tokens or SUFFIX_TOKENS, body.max_tokens or SUFFIX_TOKENS),)
        )
        names = FieldNames(template="suffix", gen_length="max_tokens")
        return CanvasRequest(**given, prompt=body.prompt, template=template.source(), names=names)
    if isinstance(body, CompletionRequest):
        return CanvasRequest(
            **given, prompt=body.prompt, gen_length=body.max_tokens, names=FieldNames(gen_length="max_tokens")
        )
    *earlier, last = body.messages
    newer = body.max_completion_tokens is not None
    return CanvasRequest(
        **given,
        prompt=last.content,
        history=tuple((_ROLES.get(message.role, message.role), message.content) for message in earlier),
        gen_length=body.max_completion_tokens if newer else body.max_tokens,
        names=FieldNames("messages", "max_completion_tokens" if newer else "max_tokens"),
    )
