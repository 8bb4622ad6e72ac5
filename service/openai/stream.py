"""OpenAI's streams. Tokens land out of order, so a chunk holds only text that no later token can change.

The joined stream is the text of the plain answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from decoding.engine.handle import DecodingResult, Handle
from decoding.records.events import Event, ReopenEvent
from service.backend.backend import Backend
from service.generation.prepare import Prepared
from service.generation.stop import certain, tokens_before_stop
from service.lifecycle import Service
from service.openai import replies
from service.openai.replies import AnswerShape, Asked
from service.schemas.generate import Sample
from service.streaming import EventStream, SampleView


def data(content: str) -> bytes:
    """One event without a name, as OpenAI sends them; `content` is on one line."""
    return f"data: {content}\n\n".encode()


class OpenAIStream(EventStream):
    """Chunks of text as it settles, a last chunk a choice with its finish reason, the usage if asked for, `[DONE]`."""

    def __init__(
        self,
        service: Service,
        backend: Backend,
        prepared: Prepared,
        route: str,
        *,
        shape: AnswerShape,
        asked: Asked,
    ) -> None:
        super().__init__(service, backend, prepared, route)
        self.shape = shape
        self.asked = asked
        self._sent_tokens: dict[int, int] = {}

    def view(self, index: int, handle: Handle) -> SampleView:
        return TextView(self, index, handle)

    def failure(self, body: str) -> bytes:
        return data(body)

    def done(self, views: Sequence[SampleView]) -> bytes:
        parts = []
        if self.asked.usage:
            outcomes = [view.handle.result() for view in views]
            usage = replies.usage(self.prepared, outcomes, self.backend.model.codec)
            parts.append(self.chunk([], usage=usage.model_dump()))
        return b"".join([*parts, data("[DONE]")])

    def sent(self, index: int, tokens: int) -> None:
        """So many tokens of a choice have been sent, of which the next chunks' usage tells."""
        self._sent_tokens[index] = tokens

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        if self.asked.usage:
            more = {"usage": self._usage_so_far() if self.asked.usage_so_far else None, **more}
        return data(json.dumps(replies.chunk(self.shape, self.prepared, self.backend.model, choices, **more)))

    def _usage_so_far(self) -> dict[str, int]:
        prompt, tokens = sum(len(job.prompt_ids) for job in self.prepared.first_jobs), sum(self._sent_tokens.values())
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


class TextView(SampleView):
    """How much of one choice's text has been sent."""

    def __init__(self, stream: OpenAIStream, index: int, handle: Handle) -> None:
        super().__init__(stream, index, handle)
        self.text = stream
        self._canvas: dict[int, int] = {}
        self._prefix: list[int] = []
        self._sent = ""
        self._opened = False
        # A text that may be mended or repaired, or lose to another attempt, is sent once it has won; a blank once it is
        # filled.
        policy = handle.job.policy
        changes = policy.repair is not None or policy.tail_mend is not None or policy.preset == "auto"
        self._waits = changes or handle.job.template is not None

    def begin(self) -> list[bytes]:
        return []

    def step(self, event: Event) -> list[bytes]:
        if self._waits or isinstance(event, ReopenEvent):
            return []
        end_ids = self.handle.state.end_ids
        self._canvas.update(zip(event.positions, event.tokens, strict=True))
        self._canvas.update(dict.fromkeys(event.filled, end_ids[0]))
        before = len(self._prefix)
        while len(self._prefix) in self._canvas and not (self._prefix and self._prefix[-1] in end_ids):
            self._prefix.append(self._canvas[len(self._prefix)])
        if len(self._prefix) == before:
            return []
        codec = self.stream.backend.model.codec
        ended, stop = self._prefix[-1] in end_ids, self.stream.prepared.stop
        content = self._prefix[:-1] if ended else self._prefix
        self.text.sent(self.index, tokens_before_stop(content, stop, codec))
        return self._send(certain(codec.decode(content) if ended else codec.settled(content), stop))

    def end(self, outcome: DecodingResult, sample: Sample) -> list[bytes]:
        text = replies.written(sample)
        if not text.startswith(self._sent):
            raise RuntimeError(f"the stream sent {len(self._sent)} characters that are not the text's")
        prepared, model = self.stream.prepared, self.stream.backend.model
        self.text.sent(self.index, replies.tokens_of(prepared, outcome, model.codec))
        parts = self._send(text)
        logprobs = replies.logprobs_of(self.text.shape, self.text.asked, prepared, outcome, model)
        last = {
            "finish_reason": sample.finish_reason,
            "astargate": replies.details(sample).model_dump(),
            "logprobs": logprobs and logprobs.model_dump(),
        }
        return [*parts, self._chunk(self.text.shape.delta("") | last)]

    def _send(self, text: str) -> list[bytes]:
        """The chunk of what `text` adds to what has been sent, after the opening where there was none."""
        parts = []
        opening = self.text.shape.opening()
        if opening is not None and not self._opened:
            parts.append(self._chunk(opening))
        self._opened = True
        if len(text) > len(self._sent):
            parts.append(self._chunk(self.text.shape.delta(text[len(self._sent) :])))
            self._sent = text
        return parts

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return self.text.chunk([{"index": self.index, **choice}])
