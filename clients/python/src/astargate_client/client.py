"""The blocking client: sends requests to a server and returns its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar, Unpack

import httpx

from astargate_client import calls
from astargate_client.calls import Timeout
from astargate_client.committor import Committor
from astargate_client.display.replies import (
    ConstraintList,
    GateAuditList,
    GateList,
    GenerateResponse,
    ModelList,
    PolicyList,
)
from astargate_client.streams import Stream
from astargate_client.transport.connection import Connection
from astargate_client.transport.exchange import Call, Plan, Send, Wait, exchange
from astargate_client.wire import Health
from astargate_client.wire.requests import GenerateParams

T = TypeVar("T")


class Client:
    """Talks to one server. Threads may share it. Close it, or use it as a context manager.

    `base_url` and `api_key` come from ASTARGATE_BASE_URL and ASTARGATE_API_KEY where they are left out; `timeout` is
    the longest silence in seconds. `http` replaces the httpx client (proxies, certificates); its maker closes it.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: Timeout = None,
        max_retries: int = 2,
        http: httpx.Client | None = None,
    ) -> None:
        self.connection = Connection.of(base_url, api_key, timeout, max_retries)
        self._http = http or httpx.Client()
        self._owns_http = http is None
        self.committor = Committor(self)
        """What guidance is worth: measurements and horizons."""

    def with_options(self, *, timeout: Timeout = None, max_retries: int | None = None) -> Client:
        """A client with other settings over the same connections; closing it closes nothing."""
        other = Client(self.connection.base_url, api_key=self.connection.api_key, http=self._http)
        other.connection = self.connection.changed(timeout, max_retries)
        return other

    def generate(
        self,
        prompt: str = "",
        *,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[GenerateParams],
    ) -> GenerateResponse:
        """Decode `n` texts. `GenerateParams` lists the arguments, `extra_body` adds what only the server knows."""
        return self.call(calls.generate(prompt, params, extra_body, timeout))

    @contextmanager
    def stream(
        self,
        prompt: str = "",
        *,
        timeout: Timeout = None,
        extra_body: Mapping[str, Any] | None = None,
        **params: Unpack[GenerateParams],
    ) -> Iterator[Stream]:
        """As `generate`, step by step. Attempts end with the answer's beginning: nothing is retried after an event."""
        with Stream(self.call(calls.stream(prompt, params, extra_body, timeout))) as events:
            yield events

    def models(self) -> ModelList:
        """The model, its limits and defaults."""
        return self.call(calls.models())

    def constraints(self) -> ConstraintList:
        """Constraint types of this server."""
        return self.call(calls.constraints())

    def policies(self) -> PolicyList:
        """Presets and gate sources of this server."""
        return self.call(calls.policies())

    def gates(self) -> GateList:
        """Gates that this server holds."""
        return self.call(calls.gates())

    def gate_audit(self, family: str) -> GateAuditList:
        """What the online shadow audit says of a family's gates. Raises `NotFoundError` for an unknown family."""
        return self.call(calls.gate_audit(family))

    def health(self) -> Health:
        """Whether requests are taken. Raises `UnavailableError` while the model loads or the server shuts down."""
        return self.with_options(max_retries=0).call(calls.ready())

    def wait_until_ready(self, timeout: float = 300.0) -> Health:
        """Wait until requests are taken; after `timeout` seconds, raises what stands in the way."""
        return self.run(calls.until_ready(timeout))

    def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.connection.base_url!r})"

    def call(self, call: Call[T]) -> T:
        """The answer to one request, after as many attempts as it takes."""
        return self.run(exchange(call, self.connection.retries))

    def run(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        try:
            need = next(plan)
            while True:
                try:
                    answer = self._do(need)
                except httpx.TransportError as error:
                    need = plan.throw(error)
                else:
                    need = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, need: Send | Wait) -> httpx.Response | None:
        if isinstance(need, Wait):
            time.sleep(need.seconds)
            return None
        response = self._http.send(self._http.build_request(**self.connection.request(need)), stream=need.call.stream)
        if response.is_error:
            response.read()
        return response
