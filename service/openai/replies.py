"""Finished canvases in OpenAI's shapes, whole and as the chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from decoding.engine.handle import DecodingResult
from decoding.models.protocol import DenoisingModel
from service.generation import replies
from service.generation.prepare import Prepared
from service.schemas import openai as wire
from service.schemas.generate import Sample


class AnswerShape(Protocol):
    """One of OpenAI's two shapes."""

    @property
    def chunk_object(self) -> str: ...

    def reply(self, choices: list[dict[str, Any]], common: dict[str, Any]) -> wire.OpenAIReply: ...

    def choice(self, text: str) -> dict[str, Any]:
        """The text's part of a finished choice."""
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

    def opening(self) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}


COMPLETION: Final = CompletionShape()
CHAT: Final = ChatShape()


def response(
    shape: AnswerShape,
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
            **shape.choice(written(sample)),
        }
        for sample in samples
    ]
    common = {
        "id": prepared.id,
        "created": prepared.created,
        "model": model.spec.name,
        "system_fingerprint": model.spec.hash,
        "usage": usage(prepared, outcomes),
        "policy": replies.policy(prepared.policy, prepared.job.gate),
        "block_length": prepared.job.block_length,
    }
    return shape.reply(choices, common)


def written(sample: Sample) -> str:
    """The text of a choice: the sample's, or what stands before the suffix."""
    return sample.text if sample.blanks is None else sample.blanks[0]


def usage(prepared: Prepared, outcomes: Sequence[DecodingResult]) -> wire.OpenAIUsage:
    """Tokens and forward evaluations of all choices."""
    whole = replies.usage(prepared, outcomes)
    return wire.OpenAIUsage(**whole.model_dump(), total_tokens=whole.prompt_tokens + whole.completion_tokens)


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
