"""Requests to /committor, where success is measured by continuing runs, and the plan that waits for a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from astargate_client.calls import Timeout, reads, seeded_body
from astargate_client.display.replies import CommittorJob, CommittorJobList, HorizonList
from astargate_client.transport.errors import AstargateError
from astargate_client.transport.exchange import Call, Plan, Wait, exchange
from astargate_client.transport.retries import Retries
from astargate_client.wire.requests import CommittorParams, State

PATH: Final = "/v1/committor"
FIRST_INTERVAL: Final = 0.2
LONGEST_INTERVAL: Final = 2.0
StateLike = State | str | float | Sequence[int]
"""Text with [MASK] where a token is undecided, a fraction of a guided run, token ids; or the server's object."""
OnProgress = Callable[[CommittorJob], object]
JobLike = CommittorJob | str


class JobError(AstargateError):
    """A job that was waited for and has no result; `job` is its last state."""

    def __init__(self, message: str, *, job: CommittorJob) -> None:
        super().__init__(message, request_id=job.request_id)
        self.job = job


class JobFailedError(JobError):
    """The job failed."""


class JobCancelledError(JobError):
    """The job was cancelled."""


class JobTimeoutError(JobError):
    """The job has not ended in the time that was given; it goes on."""


def _state(state: StateLike | None) -> Mapping[str, Any] | None:
    match state:
        case None | dict():
            return state
        case str():
            return {"text": state}
        case int() | float():
            return {"fraction": state}
        case _:
            return {"tokens": list(state)}


def submit(
    prompt: str,
    state: StateLike | None,
    params: CommittorParams,
    extra_body: Mapping[str, Any] | None,
    timeout: Timeout,
) -> Call[CommittorJob]:
    """Begins a measurement. Not repeatable: an answer that was lost may have left a job behind."""
    body = seeded_body("committor", prompt, params, CommittorParams, extra_body)
    if state is not None:
        body["state"] = _state(state)
    return Call("POST", PATH, reads(CommittorJob), body, repeatable=False, timeout=timeout)


def get(job: JobLike) -> Call[CommittorJob]:
    return Call("GET", _path(job), reads(CommittorJob))


def cancel(job: JobLike) -> Call[CommittorJob]:
    return Call("DELETE", _path(job), reads(CommittorJob))


def page(limit: int, after: str | None, status: str | None) -> Call[CommittorJobList]:
    return Call("GET", PATH, reads(CommittorJobList), query=_query(limit=limit, after=after, status=status))


def horizons(limit: int, after: str | None) -> Call[HorizonList]:
    return Call("GET", f"{PATH}/horizons", reads(HorizonList), query=_query(limit=limit, after=after))


def forget(horizon: str) -> Call[None]:
    return Call("DELETE", f"{PATH}/horizons/{quote(horizon, safe='')}", lambda response: None)


def _path(job: JobLike) -> str:
    return f"{PATH}/{quote(job if isinstance(job, str) else job.id, safe='')}"


def _query(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def wait(
    job: JobLike, retries: Retries, on_progress: OnProgress | None = None, timeout: float | None = None
) -> Plan[CommittorJob]:
    """Ask for the job until it has succeeded, ever less often; `on_progress` gets each state.

    Raises `JobFailedError`, `JobCancelledError`, or after `timeout` seconds `JobTimeoutError` (the job goes on).
    """
    end = None if timeout is None else time.monotonic() + timeout
    interval = FIRST_INTERVAL
    current = job if isinstance(job, CommittorJob) else (yield from exchange(get(job), retries))
    while True:
        if on_progress is not None:
            on_progress(current)
        if current.status == "succeeded":
            return current
        if current.status == "failed":
            raise JobFailedError(f"{current.id} failed: {current.error}", job=current)
        if current.status == "cancelled":
            raise JobCancelledError(f"{current.id} was cancelled", job=current)
        if end is not None and time.monotonic() + interval > end:
            raise JobTimeoutError(f"{current.id} has not ended in {timeout:g} seconds", job=current)
        yield Wait(interval)
        interval = min(1.5 * interval, LONGEST_INTERVAL)
        current = yield from exchange(get(current), retries)
