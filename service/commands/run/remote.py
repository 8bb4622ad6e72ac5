"""`astargate run` with a server: the SDK sends the prompt to it. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astargate_client import AstargateError, Client, InvalidRequestError, ReopenEvent, StepEvent, Stream
from service.commands.run.events import Committed, FailedError, RefusedError, Reopened, Watch


def ask(url: str, body: Mapping[str, Any], watch: Watch | None = None) -> dict[str, Any]:
    """Send `body` to the server at `url`; `watch` sees the text grow. Raises `FailedError`."""
    rest = {name: value for name, value in body.items() if name != "prompt"}
    try:
        with Client(url) as client:
            if watch is None:
                return client.generate(body["prompt"], extra_body=rest).model_dump()
            return _watched(client, body["prompt"], rest, watch)
    except InvalidRequestError as error:
        raise RefusedError(error.message) from None
    except (AstargateError, ValueError) as error:
        raise FailedError(f"{url}: {error}") from None


def _watched(client: Client, prompt: str, rest: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
    """The answer, its events told to `watch` as they come."""
    with client.stream(prompt, extra_body=rest) as events:
        for event in events:
            if isinstance(event, StepEvent):
                watch(Committed(event.index, event.phase, event.positions, event.pieces, event.filled))
            elif isinstance(event, ReopenEvent):
                watch(_reopened(event.index, events))
        return events.result().model_dump()


def _reopened(index: int, events: Stream) -> Reopened:
    return Reopened(index, events.canvases[index].pieces)
