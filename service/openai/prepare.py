"""A request in OpenAI's shape becomes jobs: what `translate` does, in the words of those clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from decoding.constraints import parse
from decoding.gates.protocol import GateResolver
from decoding.models.protocol import DenoisingModel, TextCodec
from service.config.settings import Settings
from service.generation.canvas import fitting_canvas
from service.generation.prepare import Prepared, RecordedHorizons, prepare
from service.http.errors import ApiError, from_exception, invalid
from service.schemas.base import MAX_PROMPT_CHARACTERS
from service.schemas.generate import GenerateRequest
from service.schemas.openai import ChatRequest, CompletionRequest

LONGEST_BLOCK: Final = 8
"""Of a canvas that its request and its model leave undivided: text appears at the latest so many tokens late."""
_SHARED: Final = (
    *("constraint", "family", "render_constraint", "policy", "temperature", "top_p", "confidence"),
    *("steps", "block_length", "eos_fill", "suppress_eos", "defer_eos", "seed", "n", "deadline_s"),
)
"""Fields that mean what they mean in /generate."""


def prepare_openai(
    body: CompletionRequest | ChatRequest,
    model: DenoisingModel,
    gates: GateResolver,
    settings: Settings,
    recorded: RecordedHorizons | None = None,
) -> Prepared:
    """Translate a request. Raises `ApiError` naming OpenAI's field. Tokenizes: keep it off the event loop."""
    _check(body, model)
    names = {"gen_length": "max_tokens"}
    encode: Callable[[str], list[int]] = model.codec.encode_prompt
    if isinstance(body, ChatRequest):
        names |= {"prompt": "messages"}
        if body.max_completion_tokens is not None:
            names["gen_length"] = "max_completion_tokens"
        encode = partial(_encode_chat, model.codec, body)
    try:
        return prepare(_request(body, model), model, gates, settings, recorded, encode)
    except Exception as error:
        answer = from_exception(error)
        if answer is None:
            raise
        raise _renamed(answer, names) from error


def _check(body: CompletionRequest | ChatRequest, model: DenoisingModel) -> None:
    if body.model not in (model.spec.name, model.spec.hash):
        message = f"this server does not serve that model; it serves '{model.spec.name}'"
        raise ApiError(404, message, code="model_not_found", param="model")
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "is only used with stream: true; leave it out")
    if isinstance(body, ChatRequest):
        if body.max_tokens is not None and body.max_completion_tokens is not None:
            raise invalid("max_completion_tokens", "is max_tokens by another name; give one of them")
        if body.messages[-1].role != "user":
            raise invalid("messages", "must end with the user's turn")
        if sum(len(message.content) for message in body.messages) > MAX_PROMPT_CHARACTERS:
            raise invalid("messages", f"may have {MAX_PROMPT_CHARACTERS} characters together")


def _request(body: CompletionRequest | ChatRequest, model: DenoisingModel) -> GenerateRequest:
    """The same request in /generate's words."""
    given: dict[str, Any] = {name: getattr(body, name) for name in _SHARED if getattr(body, name) is not None}
    given["gen_length"] = body.max_tokens
    if isinstance(body, ChatRequest):
        given["gen_length"] = body.max_tokens or body.max_completion_tokens
        given["prompt"] = body.messages[-1].content
    else:
        given["prompt"] = body.prompt
    if body.block_length is None:
        given |= _moving(body, given["gen_length"], model)
    return GenerateRequest(**given)


def _moving(body: CompletionRequest | ChatRequest, gen_length: int | None, model: DenoisingModel) -> dict[str, Any]:
    """The shape of the canvas, with blocks where neither the request nor the model has any."""
    constraint = None if body.constraint is None else parse(body.constraint)
    defer = False if body.suppress_eos and body.defer_eos is None else body.defer_eos
    canvas = fitting_canvas(gen_length, body.steps, None, defer, constraint, model.codec, model.spec)
    block = canvas.block_length or moving_block(canvas.gen_length, canvas.steps)
    if block is None:
        return {}
    return {"gen_length": canvas.gen_length, "steps": canvas.steps, "block_length": block}


def moving_block(gen_length: int, steps: int) -> int | None:
    """The longest block of 2 to `LONGEST_BLOCK` that cuts the canvas into several and its steps evenly, if any."""
    for length in range(min(LONGEST_BLOCK, gen_length // 2), 1, -1):
        if gen_length % length == 0 and steps % (gen_length // length) == 0:
            return length
    return None


def _encode_chat(codec: TextCodec, body: ChatRequest, last: str) -> list[int]:
    """Ids of the conversation, `last` (with the constraint's instruction) in place of its final turn."""
    roles = {"developer": "system"}
    earlier = [(roles.get(message.role, message.role), message.content) for message in body.messages[:-1]]
    return codec.encode_chat([*earlier, ("user", last)])


def _renamed(answer: ApiError, names: dict[str, str]) -> ApiError:
    message = str(answer)
    if answer.param in names:
        message = re.sub(rf"^{answer.param}\b", names[answer.param], message)
    message = re.sub(r"\bgen_length\b", names["gen_length"], message)
    param = names.get(answer.param, answer.param) if answer.param is not None else None
    return ApiError(answer.status, message, code=answer.code, param=param, headers=answer.headers)
