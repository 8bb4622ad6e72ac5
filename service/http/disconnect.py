"""How an answer ends early: the client left, its deadline passed, or the stream has said why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from decoding.engine.handle import DecodingError

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed the connection before the answer was complete."""


class StreamEndedError(Exception):
    """A stream has said to its client why it ended early; nothing more can be answered."""


def deadline_passed() -> DecodingError:
    """What a request fails with whose deadline passes, whatever it waits for."""
    return DecodingError("the request's deadline has passed", "deadline")


@asynccontextmanager
async def until(deadline: float | None) -> AsyncIterator[None]:
    """End the block with `deadline_passed` at `deadline`, a value of `time.monotonic`; None: never."""
    seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise deadline_passed() from None
        raise


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, unless the client leaves first: then `work` is cancelled and `ClientGoneError` raised."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})  # its clean-up frees the engine before anything else is done
        if not task.cancelled():
            task.exception()  # seen: nobody is left to hear of it
        raise ClientGoneError
    finally:
        task.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
