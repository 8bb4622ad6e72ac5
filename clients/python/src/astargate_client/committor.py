"""`client.committor`: measures what guidance still adds to a half-decoded text, and when it may end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, Unpack

from astargate_client import committor_calls as calls
from astargate_client.calls import Timeout
from astargate_client.committor_calls import JobLike, OnProgress, StateLike
from astargate_client.display.replies import CommittorJob, CommittorJobList, HorizonList
from astargate_client.transport.connection import Connection
from astargate_client.transport.exchange import Call, Plan
from astargate_client.wire.requests import CommittorParams

T = TypeVar("T")


class Caller(Protocol):
    """What `Committor` needs of a client."""

    connection: Connection

    def call(self, call: Call[T]) -> T:
        """The answer to one request."""

    def run(self, plan: Plan[T]) -> T:
        """The result of several."""


class AsyncCaller(Protocol):
    """`Caller` with methods to await."""

    connection: Connection

    async def call(self, call: Call[T]) -> T:
        """The answer to one request."""

    async def run(self, plan: Plan[T]) -> T:
        """The result of several."""


class Committor:
    """Measurements of one client's server. Small ones answer at once, larger ones are jobs."""

    def __init__(self, client: Caller) -> None:
        self._client = client

    def submit(
        self,
        prompt: str = "",
        *,
        state: StateLike | None = None,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[CommittorParams],
    ) -> CommittorJob:
        """Begin a measurement from `state`, or with `horizon=True` of the whole switch curve."""
        return self._client.call(calls.submit(prompt, state, params, extra_body, timeout))

    def wait(
        self, job: JobLike, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> CommittorJob:
        """Wait for its result; `on_progress` is called with the job's every state."""
        return self._client.run(calls.wait(job, self._client.connection.retries, on_progress, timeout))

    def measure(
        self,
        prompt: str = "",
        *,
        state: StateLike | None = None,
        on_progress: OnProgress | None = None,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[CommittorParams],
    ) -> CommittorJob:
        """`submit`, then `wait`; the job with its result."""
        job = self.submit(prompt, state=state, timeout=timeout, extra_body=extra_body, **params)
        return self.wait(job, on_progress=on_progress)

    def get(self, job: JobLike) -> CommittorJob:
        """The job as it is now."""
        return self._client.call(calls.get(job))

    def cancel(self, job: JobLike) -> CommittorJob:
        """End it; one that has ended stays as it is."""
        return self._client.call(calls.cancel(job))

    def list(self, *, limit: int = 20, after: str | None = None, status: str | None = None) -> CommittorJobList:
        """Your jobs without their results, newest first; `after` is the last id of the page before."""
        return self._client.call(calls.page(limit, after, status))

    def horizons(self, *, limit: int = 20, after: str | None = None) -> HorizonList:
        """Your measured horizons, which serve `handoff("recorded")`, newest first."""
        return self._client.call(calls.horizons(limit, after))

    def forget(self, horizon: str) -> None:
        """Forget a measured horizon."""
        return self._client.call(calls.forget(horizon))


class AsyncCommittor:
    """`Committor` with methods to await."""

    def __init__(self, client: AsyncCaller) -> None:
        self._client = client

    async def submit(
        self,
        prompt: str = "",
        *,
        state: StateLike | None = None,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[CommittorParams],
    ) -> CommittorJob:
        """Begin a measurement from `state`, or with `horizon=True` of the whole switch curve."""
        return await self._client.call(calls.submit(prompt, state, params, extra_body, timeout))

    async def wait(
        self, job: JobLike, *, on_progress: OnProgress | None = None, timeout: float | None = None
    ) -> CommittorJob:
        """Wait for its result; `on_progress` is called with the job's every state."""
        return await self._client.run(calls.wait(job, self._client.connection.retries, on_progress, timeout))

    async def measure(
        self,
        prompt: str = "",
        *,
        state: StateLike | None = None,
        on_progress: OnProgress | None = None,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[CommittorParams],
    ) -> CommittorJob:
        """`submit`, then `wait`; the job with its result."""
        job = await self.submit(prompt, state=state, timeout=timeout, extra_body=extra_body, **params)
        return await self.wait(job, on_progress=on_progress)

    async def get(self, job: JobLike) -> CommittorJob:
        """The job as it is now."""
        return await self._client.call(calls.get(job))

    async def cancel(self, job: JobLike) -> CommittorJob:
        """End it; one that has ended stays as it is."""
        return await self._client.call(calls.cancel(job))

    async def list(self, *, limit: int = 20, after: str | None = None, status: str | None = None) -> CommittorJobList:
        """Your jobs without their results, newest first; `after` is the last id of the page before."""
        return await self._client.call(calls.page(limit, after, status))

    async def horizons(self, *, limit: int = 20, after: str | None = None) -> HorizonList:
        """Your measured horizons, which serve `handoff("recorded")`, newest first."""
        return await self._client.call(calls.horizons(limit, after))

    async def forget(self, horizon: str) -> None:
        """Forget a measured horizon."""
        return await self._client.call(calls.forget(horizon))
