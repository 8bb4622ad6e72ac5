"""Where texts are judged: on a thread of its own, so that no decoding step waits for a predicate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from decoding.engine.handle import DecodingError, Handle
from decoding.engine.observer import JudgeReport, Notify
from decoding.repair.loop import Action, RepairLoop

logger = logging.getLogger(__name__)


class JudgeThread:
    """Asks repair loops what their requests do next, and reports each answer to `notify`, on its own thread.

    Until `start` (an engine that its caller steps) it answers at once, on the caller's thread.
    """

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start the thread."""
        self._pool = ThreadPoolExecutor(1, "astargate-judge")

    def close(self) -> None:
        """Stop after the current text; what waits is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def judge(self, handle: Handle, repair_loop: RepairLoop) -> None:
        """Judge a request's finished canvas; the request waits for the report."""
        handle.parked = True
        self._ask(handle, partial(repair_loop.judge, handle.state))

    def rollout_ended(self, owner: Handle) -> None:
        """Once all rollouts of `owner` have ended, let them choose what it reopens."""
        if owner.repair_loop is not None and not owner.done and all(rollout.done for rollout in owner.rollouts):
            states, owner.rollouts = [rollout.state for rollout in owner.rollouts], []
            self._ask(owner, partial(owner.repair_loop.measured, states))

    def _ask(self, handle: Handle, question: Callable[[], Action]) -> None:
        if self._pool is None:
            self._answer(handle, question)
        else:
            self._pool.submit(self._answer, handle, question)

    def _answer(self, handle: Handle, question: Callable[[], Action]) -> None:
        action: Action | DecodingError = None
        if not handle.done:
            try:
                action = question()
            except BaseException as error:  # a predicate may raise anything; its request fails, no other does
                logger.exception("the text of request %d could not be judged", handle.id)
                action = DecodingError(f"the text could not be judged: {type(error).__name__}: {error}")
                action.__cause__ = error
        self._notify(JudgeReport(handle, action))
