"""From the engine's thread to the event loop: one hand-off a step, whatever the number of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from decoding.engine.handle import Handle


class Bridge:
    """Wakes whoever watches a handle when it has news. All but `on_update` belongs to the event loop."""

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
