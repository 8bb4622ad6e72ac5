"""How an answer ends early: the client left, or the stream has said why."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed the connection before the answer was complete."""


class StreamEndedError(Exception):
    """A stream has told its client why it ended early; nothing more can be answered."""


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
