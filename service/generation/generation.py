"""One admitted request while it is decoded, and how its steps reach the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from decoding.engine.handle import DecodingResult, Handle
from service.generation.prepare import Prepared
from service.http.disconnect import deadline_passed

DEADLINE_GRACE: Final = 0.2
"""Seconds that the engine gets to end an overdue request itself; it cannot while a step or a verdict takes longer."""


class Bridge:
    """Carries the engine's updates to the event loop: one hand-off a step, however many requests took part in it.

    All methods but `on_update` belong to the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: dict[Handle, Callable[[Handle], None]] = {}

    def on_update(self, handles: list[Handle]) -> None:
        """The engine's callback; any thread."""
        try:
            self._loop.call_soon_threadsafe(self._wake, handles)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def watch(self, handle: Handle, wake: Callable[[Handle], None]) -> None:
        """Call `wake` on the loop after each step of `handle` from now on; what came before is the caller's to see."""
        self._watchers[handle] = wake

    def forget(self, handle: Handle) -> None:
        self._watchers.pop(handle, None)

    def _wake(self, handles: list[Handle]) -> None:
        for handle in handles:
            watcher = self._watchers.get(handle)
            if watcher is not None:
                watcher(handle)


class Generation:
    """The handles of a request, awaited together. Lives on the event loop; use as a context manager."""

    def __init__(self, prepared: Prepared, handles: Iterable[Handle], bridge: Bridge, *, every_step: bool) -> None:
        self.prepared = prepared
        self.handles = tuple(handles)
        self.began = time.monotonic()
        self._bridge = bridge
        self._every_step = every_step
        self._updated = asyncio.Event()
        self._aborted: Exception | None = None
        self._overdue: asyncio.TimerHandle | None = None
        for handle in self.handles:
            bridge.watch(handle, self._notified)
        self._updated.set()  # a handle may have ended before it was watched

    def _notified(self, handle: Handle) -> None:
        if self._every_step or handle.done:
            self._updated.set()

    @property
    def running(self) -> bool:
        """Whether the engine has begun with it."""
        return any(handle.first_run is not None for handle in self.handles)

    @property
    def finish_reason(self) -> str:
        """Of a finished request: "length" where a sample filled its canvas, else "stop"."""
        reasons = {handle.result().finish_reason for handle in self.handles}
        return "length" if "length" in reasons else "stop"

    async def update(self) -> None:
        """Wait until a sample has ended or, with `every_step`, moved. Raises the request's failure or abortion."""
        await self._updated.wait()
        self._updated.clear()
        if self._aborted is not None:
            raise self._aborted
        for handle in self.handles:
            if handle.error is not None:
                raise handle.error

    async def outcomes(self) -> list[DecodingResult]:
        """All results in order. Raises the first sample's error as soon as one fails."""
        while True:
            await self.update()
            if all(handle.done for handle in self.handles):
                return [handle.result() for handle in self.handles]

    def abort(self, reason: Exception) -> None:
        """Cancel every unfinished sample; `update` and `outcomes` raise `reason`."""
        self._aborted = reason
        self._cancel()
        self._updated.set()

    def _cancel(self) -> None:
        for handle in self.handles:
            if not handle.done:
                handle.cancel()

    def __enter__(self) -> Generation:
        deadline = self.prepared.job.deadline
        if deadline is not None:
            seconds = deadline - time.monotonic() + DEADLINE_GRACE
            self._overdue = asyncio.get_running_loop().call_later(seconds, self._pass_deadline)
        return self

    def _pass_deadline(self) -> None:
        if not all(handle.done for handle in self.handles):
            self.abort(deadline_passed())

    def __exit__(self, *exception: object) -> None:
        """Nothing decodes for a request that nobody waits for."""
        if self._overdue is not None:
            self._overdue.cancel()
        for handle in self.handles:
            self._bridge.forget(handle)
        self._cancel()
