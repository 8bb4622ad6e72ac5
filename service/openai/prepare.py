"""A request in OpenAI's shape becomes decoding jobs, with errors in the words of those clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from decoding.gates.protocol import GateResolver
from decoding.models.protocol import DenoisingModel
from decoding.request.template import Blank, Template
from service.config.settings import Settings
from service.generation.job import check_model
from service.generation.prepare import Prepared, RecordedHorizons, prepare_canvas, reads_database
from service.generation.request import CanvasRequest, FieldNames
from service.http.errors import ApiError, invalid
from service.schemas.base import MAX_PROMPT_CHARACTERS
from service.schemas.openai import ChatRequest, CompletionRequest, OpenAIRequest

_SHARED: Final = (
    *("constraint", "family", "render_constraint", "policy", "temperature", "top_p", "confidence"),
    *("steps", "block_length", "eos_fill", "defer_eos", "seed", "deadline_s"),
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
    if settings.lenient and asked.gen_length is not None:
        asked = replace(asked, gen_length=min(asked.gen_length, model.spec.max_canvas))
    prompts = body.prompt if isinstance(body, CompletionRequest) else [asked.prompt]
    prepared = _of_prompts(prompts, asked, lambda one: prepare_canvas(one, model, gates, settings, recorded))
    policy = prepared.policy
    rewrites = policy.repair is not None or policy.tail_mend is not None or policy.preset == "auto"
    if body.logprobs not in (None, False) and rewrites:
        raise invalid("logprobs", "is not served where a position may be written twice (presets reopen_repair and "
                      "auto, policy.tail_mend); leave it out")  # fmt: skip
    return replace(prepared, stop=tuple(body.stop or ()))


def _of_prompts(prompts: Sequence[str], asked: CanvasRequest, prepare: Callable[[CanvasRequest], Prepared]) -> Prepared:
    """One request of several prompts: n choices for the first, then n for the next, each with a seed of its own."""
    if len(prompts) == 1:
        return prepare(replace(asked, prompt=prompts[0]))
    if reads_database(asked.policy):
        raise invalid("prompt", "must be one string where the policy reads what was measured for a prompt")
    n, seed = asked.samples, secrets.randbelow(2**32) if asked.seed is None else asked.seed
    together = replace(asked, samples=n * len(prompts), seed=seed)
    try:
        each = [prepare(replace(together, prompt=prompt)) for prompt in prompts]
    except ApiError as error:
        if error.param == "n":
            raise invalid("prompt", f"holds too many prompts: {len(prompts)} of them count as n. {error}") from None
        raise
    jobs = [job for index, one in enumerate(each) for job in one.jobs[index * n : (index + 1) * n]]
    return replace(each[0], jobs=tuple(jobs), prompts=len(prompts))


def _check(body: CompletionRequest | ChatRequest, model: DenoisingModel) -> None:
    check_model(body.model, model.spec)
    if isinstance(body, CompletionRequest) and body.suffix:
        for name in ("stop", "logprobs"):
            if getattr(body, name) not in (None, []):
                raise invalid(name, "is not served with a suffix; leave one of them out")
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "is only used with stream: true; leave it out")
    if isinstance(body, ChatRequest):
        lengths = {body.max_tokens, body.max_completion_tokens} - {None}
        if len(lengths) > 1:
            raise invalid("max_completion_tokens", "is max_tokens by another name, which is given with another value")
        if body.top_logprobs is not None and not body.logprobs:
            raise invalid("top_logprobs", "is only used with logprobs: true; leave it out")
        if body.messages[-1].role != "user":
            raise invalid("messages", "must end with the user's turn")
        if sum(len(message.content) for message in body.messages) > MAX_PROMPT_CHARACTERS:
            raise invalid("messages", f"may have {MAX_PROMPT_CHARACTERS} characters together")


def _canvas_request(body: CompletionRequest | ChatRequest) -> CanvasRequest:
    """The request with this server's names of its fields, and OpenAI's names for errors."""
    given: dict[str, Any] = {name: getattr(body, name) for name in _SHARED if getattr(body, name) is not None}
    given |= {"streams_in_blocks": bool(body.stream), "samples": body.n or 1, "suppress_eos": _suppressed(body)}
    if isinstance(body, CompletionRequest) and body.suffix:
        template = Template(
            ("", body.suffix), (Blank(body.max_tokens or SUFFIX_TOKENS, body.max_tokens or SUFFIX_TOKENS),)
        )
        names = FieldNames(template="suffix", gen_length="max_tokens")
        return CanvasRequest(**given, template=template.source(), names=names)
    if isinstance(body, CompletionRequest):
        return CanvasRequest(**given, gen_length=body.max_tokens, names=FieldNames(gen_length="max_tokens"))
    *earlier, last = body.messages
    newer = body.max_completion_tokens is not None
    return CanvasRequest(
        **given,
        prompt=last.content,
        history=tuple((_ROLES.get(message.role, message.role), message.content) for message in earlier),
        gen_length=body.max_completion_tokens if newer else body.max_tokens,
        names=FieldNames("messages", "max_completion_tokens" if newer else "max_tokens"),
    )


def _suppressed(body: OpenAIRequest) -> bool:
    """Whether the canvas holds no end-of-text, which has two names."""
    if None not in (body.suppress_eos, body.ignore_eos) and body.suppress_eos != body.ignore_eos:
        raise invalid("ignore_eos", "is suppress_eos by another name, which is given with another value")
    return bool(body.suppress_eos or body.ignore_eos)
