"""Finished canvases in OpenAI's shapes, whole and as the chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from decoding.engine.handle import DecodingResult
from decoding.models.protocol import DenoisingModel, TextCodec
from service.generation import replies
from service.generation.prepare import Prepared
from service.generation.stop import tokens_before_stop
from service.openai import logprobs
from service.openai.logprobs import ChosenToken
from service.schemas import openai as wire
from service.schemas.base import Reply
from service.schemas.generate import Sample


class AnswerShape(Protocol):
    """One of OpenAI's two shapes."""

    @property
    def chunk_object(self) -> str: ...

    def reply(self, choices: list[dict[str, Any]], common: dict[str, Any]) -> wire.OpenAIReply: ...

    def choice(self, text: str) -> dict[str, Any]:
        """The text's part of a finished choice."""
        ...

    def logprobs(self, tokens: Sequence[ChosenToken], top: int, codec: TextCodec) -> Reply:
        """A finished choice's tokens with their log probabilities; `top`: alternatives that were asked for."""
        ...

    def opening(self) -> dict[str, Any] | None:
        """The text's part of a choice's first chunk, where the shape has one before any text."""
        ...

    def delta(self, text: str) -> dict[str, Any]:
        """The text's part of a chunk."""
        ...


class CompletionShape:
    """/v1/completions."""

    chunk_object = "text_completion"

    def reply(self, choices: list[dict[str, Any]], common: dict[str, Any]) -> wire.OpenAIReply:
        return wire.CompletionReply(choices=[wire.CompletionChoice(**choice) for choice in choices], **common)

    def choice(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def logprobs(self, tokens: Sequence[ChosenToken], top: int, codec: TextCodec) -> Reply:
        return logprobs.completion(tokens, top, codec)

    def opening(self) -> dict[str, Any] | None:
        return None

    def delta(self, text: str) -> dict[str, Any]:
        return {"text": text}


class ChatShape:
    """/v1/chat/completions."""

    chunk_object = "chat.completion.chunk"

    def reply(self, choices: list[dict[str, Any]], common: dict[str, Any]) -> wire.OpenAIReply:
        return wire.ChatReply(choices=[wire.ChatChoice(**choice) for choice in choices], **common)

    def choice(self, text: str) -> dict[str, Any]:
        return {"message": wire.ReplyMessage(content=text)}

    def logprobs(self, tokens: Sequence[ChosenToken], top: int, codec: TextCodec) -> Reply:
        return logprobs.chat(tokens, top)

    def opening(self) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}


COMPLETION: Final = CompletionShape()
CHAT: Final = ChatShape()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants to read beside the text."""

    alternatives: int | None = None
    """Log probabilities of the tokens, and of so many alternatives; None: no log probabilities."""
    usage: bool = False
    """A stream's last chunk has the usage."""
    usage_so_far: bool = False
    """Every chunk of it has."""

    @classmethod
    def of(cls, body: wire.CompletionRequest | wire.ChatRequest) -> Asked:
        options = body.stream_options or wire.StreamOptions()
        if isinstance(body, wire.ChatRequest):
            alternatives = (body.top_logprobs or 0) if body.logprobs else None
        else:
            alternatives = body.logprobs
        return cls(alternatives, options.include_usage, options.include_usage and options.continuous_usage_stats)


def response(
    shape: AnswerShape,
    asked: Asked,
    prepared: Prepared,
    samples: list[Sample],
    outcomes: Sequence[DecodingResult],
    model: DenoisingModel,
) -> wire.OpenAIReply:
    """The whole answer; keep it off the event loop."""
    choices = [
        {
            "index": sample.index,
            "finish_reason": sample.finish_reason,
            "astargate": details(sample),
            "logprobs": logprobs_of(shape, asked, prepared, outcome, model),
            **shape.choice(written(sample)),
        }
        for sample, outcome in zip(samples, outcomes, strict=True)
    ]
    common = {
        "id": prepared.id,
        "created": prepared.created,
        "model": model.spec.name,
        "system_fingerprint": model.spec.hash,
        "usage": usage(prepared, outcomes, model.codec),
        "policy": replies.policy(prepared.policy, prepared.job.gate),
        "block_length": prepared.job.block_length,
    }
    return shape.reply(choices, common)


def written(sample: Sample) -> str:
    """The text of a choice: the sample's, or what stands before the suffix."""
    return sample.text if sample.blanks is None else sample.blanks[0]


def tokens_of(prepared: Prepared, outcome: DecodingResult, codec: TextCodec) -> int:
    """Tokens of a finished choice's text."""
    if not prepared.stop:
        return replies.completion_tokens(outcome)
    return tokens_before_stop(outcome.content, prepared.stop, codec)


def usage(prepared: Prepared, outcomes: Sequence[DecodingResult], codec: TextCodec) -> wire.OpenAIUsage:
    """Tokens and forward evaluations of all choices."""
    whole = replies.usage(prepared, outcomes)
    tokens = sum(tokens_of(prepared, outcome, codec) for outcome in outcomes)
    return wire.OpenAIUsage(
        prompt_tokens=whole.prompt_tokens,
        completion_tokens=tokens,
        total_tokens=whole.prompt_tokens + tokens,
        forward_evaluations=whole.forward_evaluations,
    )


def logprobs_of(
    shape: AnswerShape, asked: Asked, prepared: Prepared, outcome: DecodingResult, model: DenoisingModel
) -> Reply | None:
    """Log probabilities of a finished choice's tokens, where they are asked for."""
    if asked.alternatives is None:
        return None
    tokens = logprobs.chosen_tokens(outcome, tokens_of(prepared, outcome, model.codec), model.codec)
    return shape.logprobs(tokens, asked.alternatives, model.codec)


def details(sample: Sample) -> wire.Details:
    """What an OpenAI choice has no field for."""
    return wire.Details(**{name: getattr(sample, name) for name in wire.Details.model_fields})


def chunk(
    shape: AnswerShape, prepared: Prepared, model: DenoisingModel, choices: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """One chunk of a stream; every choice has its index and its part of the text."""
    return {
        "id": prepared.id,
        "object": shape.chunk_object,
        "created": prepared.created,
        "model": model.spec.name,
        "system_fingerprint": model.spec.hash,
        "choices": [{"logprobs": None, "finish_reason": None, **choice} for choice in choices],
        **more,
    }
