"""Worker threads for what must not run on the event loop, in lanes: no kind of work waits for another kind.

A large body, or a database that does not answer, holds up its own lane alone. Work whose caller has left before it
began is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BODY: Final = 32 << 10
"""Bytes from which a body is prepared in a lane of its own: what a body costs grows with its length."""


class WorkerLane(Enum):
    """A kind of work."""

    PREPARE = "prepare"
    """Tokenizes, validates, plans and admits what is small."""
    LARGE = "large"
    """The same for large bodies."""
    LOOKUP = "lookup"
    """The same for requests that read the database first."""
    ANSWER = "answer"
    """Writes answers and events."""


THREADS: Final[Mapping[WorkerLane, int]] = {
    WorkerLane.PREPARE: 2,
    WorkerLane.LARGE: 1,
    WorkerLane.LOOKUP: 2,
    WorkerLane.ANSWER: 2,
}
"""Few: more would only fight the engine and the loop for the interpreter."""


class Workers:
    """The lanes of one server."""

    def __init__(self) -> None:
        self._pools = {
            lane: ThreadPoolExecutor(threads, f"astargate-worker-{lane.value}") for lane, threads in THREADS.items()
        }

    async def run(self, lane: WorkerLane, function: Callable[[], T]) -> T:
        """The result of `function`; where the caller is cancelled before it has begun, it never runs."""
        return await asyncio.get_running_loop().run_in_executor(self._pools[lane], _contained, function)

    def submit(self, lane: WorkerLane, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The future of a call; any thread."""
        return self._pools[lane].submit(_contained, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def _contained(function: Callable[[], T]) -> T:
    """The result of `function`, which may run others' code (models, predicates): it must not end the event loop."""
    try:
        return function()
    except SystemExit as error:
        raise RuntimeError(f"a worker thread was told to exit: {error}") from error
