"""A text while it is decoded: context managers that yield events, and keep the canvas as it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Self

import httpx

from astargate_client.calls import request_id_of
from astargate_client.display.canvas import Canvas
from astargate_client.display.replies import GenerateResponse
from astargate_client.events import Event, EventReader
from astargate_client.transport import errors
from astargate_client.wire import CanvasEvent, ReopenEvent, StepEvent


class _StreamState:
    """What both streams know."""

    def __init__(self, response: httpx.Response) -> None:
        self._http = response
        self.request_id = request_id_of(response)
        self._reader = EventReader(self.request_id)
        self._result: GenerateResponse | None = None
        self.canvases: dict[int, Canvas] = {}
        """The canvas of each sample, by its index, as far as the events that were read tell it."""

    def _take(self, line: str) -> Event | None:
        event = self._reader.feed(line)
        if isinstance(event, StepEvent):
            self.canvases.setdefault(event.index, Canvas()).commit(event)
        if isinstance(event, CanvasEvent | ReopenEvent):
            self.canvases.setdefault(event.index, Canvas()).resume(event.canvas, event.pieces, event.positions)
        if isinstance(event, GenerateResponse):
            self._result = event
        return event

    def _finished(self) -> GenerateResponse:
        """The last event. Raises `StreamBrokenError` where the stream has ended without it."""
        if self._result is None:
            message = "the stream ended before its last event"
            raise errors.StreamBrokenError(message, request_id=self.request_id)
        return self._result

    def _broken(self, error: Exception) -> errors.StreamBrokenError:
        kind = type(error).__name__
        return errors.StreamBrokenError(f"the stream broke: {error or kind} ({kind})", request_id=self.request_id)


class Stream(_StreamState):
    """Iterate over the events. Leaving the `with` block early ends the request, and frees its rows on the server."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response)
        self._events = self._read()

    def _read(self) -> Generator[Event, None, None]:
        try:
            for line in self._http.iter_lines():
                if (event := self._take(line)) is not None:
                    yield event
        except (httpx.TransportError, httpx.StreamError) as error:
            raise self._broken(error) from error
        finally:
            self._http.close()
        self._finished()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def result(self) -> GenerateResponse:
        """Read to the end; what `generate` would have returned."""
        for _ in self._events:
            pass
        return self._finished()

    def close(self) -> None:
        """End the request."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncStream(_StreamState):
    """`Stream` for `async with` and `async for`."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response)
        self._events = self._read()

    async def _read(self) -> AsyncIterator[Event]:
        try:
            async for line in self._http.aiter_lines():
                if (event := self._take(line)) is not None:
                    yield event
        except (httpx.TransportError, httpx.StreamError) as error:
            raise self._broken(error) from error
        finally:
            await self._http.aclose()
        self._finished()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def result(self) -> GenerateResponse:
        """Read to the end; what `generate` would have returned."""
        async for _ in self._events:
            pass
        return self._finished()

    async def close(self) -> None:
        """End the request."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
