"""The client for asyncio: the same requests and answers as the blocking client, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar, Unpack

import httpx

from astargate_client import calls
from astargate_client.calls import Timeout
from astargate_client.committor import AsyncCommittor
from astargate_client.display.replies import (
    ConstraintList,
    GateAuditList,
    GateList,
    GenerateResponse,
    ModelList,
    PolicyList,
)
from astargate_client.streams import AsyncStream
from astargate_client.transport.connection import Connection
from astargate_client.transport.exchange import Call, Plan, Send, Wait, exchange
from astargate_client.wire import Health
from astargate_client.wire.requests import GenerateParams

T = TypeVar("T")


class AsyncClient:
    """`Client` with methods to await."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: Timeout = None,
        max_retries: int = 2,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.connection = Connection.of(base_url, api_key, timeout, max_retries)
        self._http = http or httpx.AsyncClient()
        self._owns_http = http is None
        self.committor = AsyncCommittor(self)
        """What guidance is worth: measurements and horizons."""

    def with_options(self, *, timeout: Timeout = None, max_retries: int | None = None) -> AsyncClient:
        """A client with other settings over the same connections; closing it closes nothing."""
        other = AsyncClient(self.connection.base_url, api_key=self.connection.api_key, http=self._http)
        other.connection = self.connection.changed(timeout, max_retries)
        return other

    async def generate(
        self,
        prompt: str = "",
        *,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[GenerateParams],
    ) -> GenerateResponse:
        """Decode `n` texts. `GenerateParams` lists the arguments, `extra_body` adds what only the server knows."""
        return await self.call(calls.generate(prompt, params, extra_body, timeout))

    @asynccontextmanager
    async def stream(
        self,
        prompt: str = "",
        *,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[GenerateParams],
    ) -> AsyncIterator[AsyncStream]:
        """As `generate`, step by step. Attempts end with the answer's beginning: nothing is retried after an event."""
        async with AsyncStream(await self.call(calls.stream(prompt, params, extra_body, timeout))) as events:
            yield events

    async def models(self) -> ModelList:
        """The model, its limits and defaults."""
        return await self.call(calls.models())

    async def constraints(self) -> ConstraintList:
        """Constraint types of this server."""
        return await self.call(calls.constraints())

    async def policies(self) -> PolicyList:
        """Presets and gate sources of this server."""
        return await self.call(calls.policies())

    async def gates(self) -> GateList:
        """Gates that this server holds."""
        return await self.call(calls.gates())

    async def gate_audit(self, family: str) -> GateAuditList:
        """What the online shadow audit says of a family's gates. Raises `NotFoundError` for an unknown family."""
        return await self.call(calls.gate_audit(family))

    async def health(self) -> Health:
        """Whether requests are taken. Raises `UnavailableError` while the model loads or the server shuts down."""
        return await self.with_options(max_retries=0).call(calls.ready())

    async def wait_until_ready(self, timeout: float = 300.0) -> Health:
        """Wait until requests are taken; after `timeout` seconds, raises what stands in the way."""
        return await self.run(calls.until_ready(timeout))

    async def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.connection.base_url!r})"

    async def call(self, call: Call[T]) -> T:
        """The answer to one request, after as many attempts as it takes."""
        return await self.run(exchange(call, self.connection.retries))

    async def run(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        try:
            need = next(plan)
            while True:
                try:
                    answer = await self._do(need)
                except httpx.TransportError as error:
                    need = plan.throw(error)
                else:
                    need = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, need: Send | Wait) -> httpx.Response | None:
        if isinstance(need, Wait):
            await asyncio.sleep(need.seconds)
            return None
        response = await self._http.send(
            self._http.build_request(**self.connection.request(need)), stream=need.call.stream
        )
        if response.is_error:
            await response.aread()
        return response
