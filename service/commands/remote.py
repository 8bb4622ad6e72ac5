"""`astargate generate` with a server: the prompt is sent to it. Nothing here loads torch."""

from __future__ import annotations

from typing import Any

import httpx


class FailedError(RuntimeError):
    """The request was refused or failed; the message is for the user."""


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send `body` to the server at `url`. Raises `FailedError`."""
    try:
        reply = httpx.post(f"{url.rstrip('/')}/generate", json=body, timeout=None)
        answer: dict[str, Any] = reply.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise FailedError(f"{url}: {error}") from None
    if reply.is_error:
        raise FailedError(str(answer.get("error", {}).get("message", reply.status_code)))
    return answer
