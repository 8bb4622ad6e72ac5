"""Server-sent events: lines become typed events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from astargate_client.display.replies import GenerateResponse, Sample
from astargate_client.transport import errors
from astargate_client.wire import CanvasEvent, HandoffEvent, ReopenEvent, StepEvent

KINDS: Final[Mapping[str, type[CanvasEvent | StepEvent | HandoffEvent | ReopenEvent | Sample | GenerateResponse]]] = {
    "canvas": CanvasEvent,
    "step": StepEvent,
    "handoff": HandoffEvent,
    "reopen": ReopenEvent,
    "sample": Sample,
    "done": GenerateResponse,
}


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a newer server."""

    name: str
    data: Any


Event = CanvasEvent | StepEvent | HandoffEvent | ReopenEvent | Sample | GenerateResponse | UnknownEvent
"""`Sample` is a finished text, `GenerateResponse` the last event: what `generate` would have returned."""


class EventReader:
    """Lines of one stream in, events out. Comments (keep-alives) and other fields are passed over."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._name = ""
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """The event that an empty `line` ends, if it does. Raises the error that an `error` event describes."""
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                self._name = value
            elif field == "data":
                self._data.append(value)
            return None
        name, data = self._name, "\n".join(self._data)
        self._name, self._data = "", []
        return self._event(name, data) if data else None

    def _event(self, name: str, data: str) -> Event:
        try:
            body = json.loads(data)
            if name == "error":
                raise errors.from_event(body, self._request_id)
            kind = KINDS.get(name)
            if kind is None:
                return UnknownEvent(name, body)
            return kind.model_validate(body).with_request_id(self._request_id)
        except (json.JSONDecodeError, ValidationError) as error:
            message = f"the event {name!r} cannot be read: {error}"
            raise errors.UnreadableAnswerError(message, request_id=self._request_id) from error
