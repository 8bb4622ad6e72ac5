"""How far a measurement is, on one line of a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TextIO

from astargate_client.wire import CommittorJob

BAR: Final = 24


def show_progress(stream: TextIO | None = None) -> Callable[[CommittorJob], None]:
    """For `on_progress`: a bar that grows in a terminal, elsewhere a line whenever a tenth more is done.

    `stream` is standard error where it is left out.
    """
    out = sys.stderr if stream is None else stream
    told = -1

    def show(job: CommittorJob) -> None:
        nonlocal told
        done, total = job.progress.rollouts, max(1, job.progress.rollouts_total)
        line = f"{job.status} {done} of {job.progress.rollouts_total} rollouts"
        ended = job.status not in {"queued", "running"}
        if out.isatty():
            filled = BAR * done // total
            out.write(f"\r[{'#' * filled}{'.' * (BAR - filled)}] {line}" + ("\n" if ended else ""))
        elif (tenth := 10 * done // total) > told or ended:
            told = tenth
            out.write(f"{line}\n")
        out.flush()

    return show
