"""Server-sent events of one request: canvas (of a template), step, handoff, reopen, sample, done, error.

`done` holds what the plain answer holds.

A slow reader gets several steps in one write. What waits for it is bounded by the steps of its canvases.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from decoding.engine.handle import DecodingResult, Handle
from decoding.records.events import Event, ReopenEvent, StepEvent
from service.backend.backend import Backend
from service.generation import replies
from service.generation.generation import Generation
from service.generation.prepare import Prepared
from service.http.answers import answer_to
from service.http.disconnect import ClientGoneError, StreamEndedError, unless_gone
from service.lifecycle import Service
from service.schemas.generate import CanvasEvent, HandoffEvent, ReopenEventReply, Sample, StepEventReply

KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def sse(event: str, data: str) -> bytes:
    """One event; `data` is JSON on one line."""
    return f"event: {event}\ndata: {data}\n\n".encode()


class EventStream(Response):
    """Admits the request (refusals are plain answers still), then streams until the end or until the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, service: Service, backend: Backend, prepared: Prepared, route: str) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self.service = service
        self.backend = backend
        self.prepared = prepared
        self.route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientGoneError, StreamEndedError):
            await unless_gone(receive, self._stream(scope, send))

    async def _stream(self, scope: Scope, send: Send) -> None:
        async with self.service.generation(self.prepared, self.route, every_step=True) as generation:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for chunk in self._chunks(generation):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:
                body = json.dumps(answer_to(error, scope).body)
                await send({"type": "http.response.body", "body": self.failure(body), "more_body": False})
                raise StreamEndedError from error
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self, generation: Generation) -> AsyncIterator[bytes]:
        views = [self.view(index, handle) for index, handle in enumerate(generation.handles)]
        while not all(view.sample for view in views):
            try:
                await asyncio.wait_for(generation.update(), self.service.settings.keep_alive_seconds)
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            if chunk := await self.service.write(partial(_new_events, views)):
                yield chunk
        yield await self.service.write(partial(self.done, views))

    def view(self, index: int, handle: Handle) -> SampleView:
        """The view that turns one sample into events."""
        return SampleView(self, index, handle)

    def failure(self, body: str) -> bytes:
        """The event that ends a stream early; `body` is an error's."""
        return sse("error", body)

    def done(self, views: Sequence[SampleView]) -> bytes:
        """The last event; worker thread."""
        samples = [view.sample for view in views if view.sample is not None]
        outcomes = [view.handle.result() for view in views]
        done = replies.summary(self.prepared, samples, outcomes, self.backend.model)
        return sse("done", replies.written(done, self.prepared.form))


def _new_events(views: Sequence[SampleView]) -> bytes:
    """Events of all samples since the last call; worker thread, one call at a time for each stream."""
    return b"".join([part for view in views for part in view.new_events()])


class SampleView:
    """What has been sent of one sample. Its methods run on worker threads, one call at a time."""

    def __init__(self, stream: EventStream, index: int, handle: Handle) -> None:
        self.stream = stream
        self.index = index
        self.handle = handle
        self.sample: Sample | None = None
        self._handoff_sent = handle.job.attempt(0).starts_base
        self._last_handoff: int | None = None
        self._begun = False

    def new_events(self) -> list[bytes]:
        """Events since the last call, as bytes."""
        if self.sample is not None:
            return []
        # Asked before the events are taken, so that the last one precedes the end; `Generation.update` raises failures.
        done = self.handle.done and self.handle.error is None
        parts = [] if self._begun else self.begin()
        self._begun = True
        parts += [part for event in self.handle.take_events() for part in self.step(event)]
        if done:
            outcome = self.handle.result()
            self.sample = self._finish(outcome)
            parts += self.end(outcome, self.sample)
        return parts

    def begin(self) -> list[bytes]:
        """The first events of the sample: the canvas of a template, whose fixed texts no step commits."""
        template = self.handle.job.template
        if template is None:
            return []
        canvas = list(template.ids)
        pieces = self.stream.backend.model.codec.pieces(canvas)
        reply = CanvasEvent(index=self.index, canvas=canvas, pieces=pieces, positions=list(template.open))
        return [sse("canvas", reply.model_dump_json())]

    def end(self, outcome: DecodingResult, sample: Sample) -> list[bytes]:
        """The last events of the sample."""
        # The steps have sent a handoff before a repair, and one that a re-check in the last step left as it was.
        sent = len(outcome.passes) > 1 or outcome.handoff_step == self._last_handoff
        return [
            *([] if sent else self._handoff(outcome.handoff_step, outcome.handoff_masked)),
            sse("sample", replies.written(sample, self.stream.prepared.form)),
        ]

    def _finish(self, outcome: DecodingResult) -> Sample:
        stream = self.stream
        sample = replies.sample(stream.prepared, self.index, outcome, stream.backend.model)
        stream.service.metrics.judged(stream.prepared, [sample])
        return sample

    def step(self, event: Event) -> list[bytes]:
        """The events of one step, or of a reopening."""
        if isinstance(event, ReopenEvent):
            return [self._reopen(event)]
        if event.phase == "guided":
            self._handoff_sent = False  # guidance may come back (gate.recheck) and end again
        parts = self._handoff(event.step, event.masked) if event.phase == "base" else []
        pieces = self.stream.backend.model.codec.pieces(list(event.tokens))
        fields: dict[str, Any] = {name: getattr(event, name) for name in StepEvent.__dataclass_fields__}
        reply = StepEventReply(index=self.index, pieces=pieces, **fields)
        return [*parts, sse("step", reply.model_dump_json())]

    def _reopen(self, event: ReopenEvent) -> bytes:
        pieces = self.stream.backend.model.codec.pieces(list(event.canvas))
        return sse("reopen", ReopenEventReply(index=self.index, pieces=pieces, **asdict(event)).model_dump_json())

    def _handoff(self, step: int | None, masked: int | None) -> list[bytes]:
        if self._handoff_sent or step is None:
            return []
        self._handoff_sent, self._last_handoff = True, step
        job = self.handle.job
        reply = HandoffEvent(
            index=self.index,
            step=step,
            fraction=step / job.steps,
            committed_fraction=1.0 - (masked or 0) / job.open_length,
        )
        return [sse("handoff", reply.model_dump_json())]
