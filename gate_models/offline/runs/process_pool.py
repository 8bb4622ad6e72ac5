"""Work items on local processes: each holds one worker (a model, say); results come as they finish.

Workers end when their parent dies, however it dies: its end of their pipe closes. A worker that dies is started again
and its item given out once more; an item that kills two workers ends the run.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

ATTEMPTS: Final = 2
Report = Callable[[int], None]
"""Called with the amount of work done since the last call."""


class Worker(Protocol[Item_contra, Result_co]):
    """What a process holds. `info` is sent once when it is ready (equal for all workers of a run)."""

    @property
    def info(self) -> Any: ...

    def run(self, item: Item_contra, report: Report) -> Result_co: ...


class WorkerError(RuntimeError):
    """A worker that could not start, raised, or kept dying; the message is what it said."""


class PoolStoppedError(Exception):
    """The run was asked to stop."""


@dataclass(slots=True)
class _Process(Generic[I]):
    process: SpawnProcess
    pipe: Connection
    item: I | None = None
    attempts: int = 0


class Processes(Generic[I, R]):
    """`count` processes, each running `factory(*arguments)`, both picklable. Use as a context manager."""

    def __init__(self, factory: Callable[..., Worker[I, R]], arguments: Sequence[Any], count: int) -> None:
        if count < 1:
            raise ValueError("at least one worker process is needed")
        self._factory, self._arguments = factory, tuple(arguments)
        self._context = multiprocessing.get_context("spawn")
        self._live: list[_Process[I]] = [self._start() for _ in range(count)]
        self._stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for live in self._live:
            live.process.terminate()
        for live in self._live:
            live.process.join()
            live.pipe.close()

    def stop(self) -> None:
        """Make `map` raise `PoolStoppedError` soon; safe to call from a signal handler."""
        self._stopping = True

    def ready(self) -> Any:
        """Wait for the workers; their `info`. Raises `WorkerError`, `PoolStoppedError`."""
        info: Any = None
        for live in self._live:
            info = self._ready(live)
        return info

    def map(self, items: Iterable[I], progress: Report, *, tick: Callable[[], None] = lambda: None) -> Iterator[R]:
        """Results as they come. `tick` is called about once a second. Raises `WorkerError`, `PoolStoppedError`."""
        waiting = deque((item, 0) for item in items)
        idle = list(self._live)
        while waiting or len(idle) < len(self._live):
            self._check_stop()
            while waiting and idle:
                live = idle.pop()
                live.item, live.attempts = waiting.popleft()
                with suppress(ConnectionError):  # it died while it was idle, which reading from it will tell
                    live.pipe.send(live.item)
            busy = {live.pipe: live for live in self._live if live.item is not None}
            for pipe in wait(list(busy), timeout=1.0):
                live = busy[pipe]  # type: ignore[index]
                try:
                    kind, content = live.pipe.recv()
                except (EOFError, ConnectionError):
                    waiting.appendleft(self._retry(live))
                    idle.append(self._replace(live))
                    continue
                if kind == "progress":
                    progress(content)
                elif kind == "failed":
                    raise WorkerError(content)
                elif kind == "done":
                    live.item = None
                    idle.append(live)
                    yield content
            tick()

    def _check_stop(self) -> None:
        if self._stopping:
            raise PoolStoppedError

    def _start(self) -> _Process[I]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._factory, self._arguments), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)

    def _ready(self, live: _Process[I]) -> Any:
        """Wait for a worker that was started, loading a model perhaps; a stop is heeded meanwhile."""
        while not live.pipe.poll(0.2):
            self._check_stop()
        try:
            kind, content = live.pipe.recv()
        except (EOFError, ConnectionError):
            live.process.join()
            raise WorkerError(f"a worker process ended while it started (exit code {live.process.exitcode})") from None
        if kind == "failed":
            raise WorkerError(content)
        return content

    def _retry(self, live: _Process[I]) -> tuple[I, int]:
        live.process.join()
        if live.item is None or live.attempts + 1 >= ATTEMPTS:
            raise WorkerError(
                f"a worker process died {live.attempts + 1} times on the same item (exit code "
                f"{live.process.exitcode}; -9 is often too little memory: use fewer workers or fewer rows)"
            )
        return live.item, live.attempts + 1

    def _replace(self, dead: _Process[I]) -> _Process[I]:
        dead.pipe.close()
        new = self._start()
        self._live[self._live.index(dead)] = new
        self._ready(new)
        return new


def _serve(pipe: Connection, factory: Callable[..., Worker[Any, Any]], arguments: tuple[Any, ...]) -> None:
    """A worker process: makes its worker, then answers items until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        worker = factory(*arguments)
        pipe.send(("ready", worker.info))
        while True:
            pipe.send(("done", worker.run(pipe.recv(), lambda amount: pipe.send(("progress", amount)))))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        known = isinstance(error, (ValueError, OSError))  # whose words say what is wrong
        pipe.send(("failed", str(error) if known else f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
