"""Parts of a server that break while it runs; for `ServerProcess(fault=...)`."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decoding.constraints.paper.keywords import Keywords
from decoding.engine.runner import Runner
from service.storage import postgres


def _breaking(whole: Callable[..., Any], flag: Path, error: BaseException) -> Callable[..., Any]:
    def broken(*arguments: Any, **named: Any) -> Any:
        if flag.exists():
            raise error
        return whole(*arguments, **named)

    return broken


def model_exits(flag: Path) -> None:
    """A model whose code ends its thread, as a library does that calls `sys.exit`."""
    Runner.run = _breaking(Runner.run, flag, SystemExit("the model exits"))  # type: ignore[method-assign]


def model_raises(flag: Path) -> None:
    """A model that fails on every step, as one does whose device is gone."""
    Runner.run = _breaking(Runner.run, flag, OSError(errno.EIO, "device is gone"))  # type: ignore[method-assign]


def predicate_exits(flag: Path) -> None:
    """A constraint whose code tries to end the process."""
    Keywords._checks = _breaking(Keywords._checks, flag, SystemExit("the predicate exits"))  # type: ignore[method-assign]


def impatient_database(flag: Path) -> None:
    """A server that gives a database half of its usual time for an answer. It works from the start."""
    postgres.ANSWER_SECONDS = postgres.BoundedConnection.answer_seconds = postgres.ANSWER_SECONDS / 2  # type: ignore[misc]


def _shift_clock(flag: Path, seconds: float) -> None:
    true = time.time
    time.time = lambda: true() + (seconds if flag.exists() else 0.0)


def clock_ahead(flag: Path) -> None:
    """A wall clock that jumps a day ahead, as one does that is set anew."""
    _shift_clock(flag, 86_400.0)


def clock_back(flag: Path) -> None:
    """A wall clock that jumps a day back."""
    _shift_clock(flag, -86_400.0)
