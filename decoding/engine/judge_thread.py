"""Where texts are judged: on a thread of its own, so that no decoding step waits for a predicate."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from decoding.engine.handle import DecodingError, Handle
from decoding.repair.loop import Continue, RepairLoop, RunRollouts

logger = logging.getLogger(__name__)

Found = Continue | RunRollouts | DecodingError | None
Question = Callable[[], Continue | RunRollouts | None]


class JudgeThread:
    """Asks pursuits what to do next; `changed` is notified of every answer.

    Until `start` (an engine that its caller steps) answers are found at once, on the caller's thread.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._found: deque[tuple[Handle, Found]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def ready(self) -> bool:
        """Whether answers wait to be taken."""
        return bool(self._found)

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(1, "astargate-judge")

    def close(self) -> None:
        """Stop after the current text; what waits is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def finished(self, handle: Handle, pursuit: RepairLoop) -> None:
        """A request's canvas is finished: it waits for the verdict, which comes with `take`."""
        handle.parked = True
        self._ask(handle, partial(pursuit.judge, handle.state))

    def rolled_out(self, owner: Handle) -> None:
        """A rollout has ended: once all of its owner's have, they choose what is reopened."""
        if owner.pursuit is not None and not owner.done and all(rollout.done for rollout in owner.rollouts):
            states, owner.rollouts = [rollout.state for rollout in owner.rollouts], []
            self._ask(owner, partial(owner.pursuit.measured, states))

    def _ask(self, handle: Handle, question: Question) -> None:
        if self._pool is None:
            self._answer(handle, question)
        else:
            self._pool.submit(self._answer, handle, question)

    def _answer(self, handle: Handle, question: Question) -> None:
        found: Found = None
        if not handle.done:
            try:
                found = question()
            except Exception as error:  # told to whoever waits for the text, whatever it is
                logger.exception("the text of request %d could not be judged", handle.id)
                found = DecodingError(f"the text could not be judged: {type(error).__name__}: {error}")
        with self._changed:
            self._found.append((handle, found))
            self._changed.notify_all()

    def take(self) -> list[tuple[Handle, Found]]:
        """Answers since the last call."""
        taken = []
        while self._found:
            taken.append(self._found.popleft())
        return taken
