"""Where the server is, and with what key, timeouts and retries it is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import httpx

from astargate_client.transport.exchange import Send
from astargate_client.transport.retries import Retries

DEFAULT_BASE_URL: Final = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT: Final = httpx.Timeout(300.0, connect=5.0)
"""Seconds without a byte; decoding on a CPU takes long."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Settings of a client. The key is never shown."""

    base_url: str
    api_key: str | None = field(repr=False)
    timeout: httpx.Timeout
    retries: Retries

    @staticmethod
    def of(
        base_url: str | None, api_key: str | None, timeout: float | httpx.Timeout | None, max_retries: int
    ) -> Connection:
        """From arguments, else ASTARGATE_BASE_URL and ASTARGATE_API_KEY, else a server on this machine without key."""
        url = (base_url or os.environ.get("ASTARGATE_BASE_URL") or DEFAULT_BASE_URL).rstrip("/")
        url = url.removesuffix("/v1").rstrip("/")  # OpenAI's clients want it, and so it is what people have at hand
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, but is {url!r}")
        if max_retries < 0:
            raise ValueError(f"max_retries must not be negative, but is {max_retries}")
        key = api_key if api_key is not None else os.environ.get("ASTARGATE_API_KEY")
        return Connection(url, key or None, _timeout(timeout) or DEFAULT_TIMEOUT, Retries(max_retries))

    def changed(self, timeout: float | httpx.Timeout | None, max_retries: int | None) -> Connection:
        """The same with other settings where they are given."""
        retries = self.retries if max_retries is None else replace(self.retries, limit=max_retries)
        return replace(self, timeout=_timeout(timeout) or self.timeout, retries=retries)

    def request(self, send: Send) -> dict[str, Any]:
        """Arguments of httpx's `build_request`."""
        call = send.call
        headers = {"X-Request-Id": send.request_id, "User-Agent": _user_agent()}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {
            "method": call.method,
            "url": self.base_url + call.path,
            "headers": headers,
            "params": dict(call.query) or None,
            "json": call.body,
            "timeout": _timeout(call.timeout) or self.timeout,
        }


@cache
def _user_agent() -> str:
    """Reads the installed package's metadata: once, not for each request."""
    return f"astargate-client/{version('astargate-client')}"


def _timeout(given: float | httpx.Timeout | None) -> httpx.Timeout | None:
    """A number is the longest silence; connecting keeps its own, shorter limit."""
    if given is None or isinstance(given, httpx.Timeout):
        return given
    return httpx.Timeout(given, connect=min(given, DEFAULT_TIMEOUT.connect or given))
