"""`astargate run` without a server: the model is loaded and the prompt decoded in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from decoding.engine.handle import DecodingError, Handle
from decoding.models.checkpoint import CheckpointError
from decoding.models.protocol import DenoisingModel
from decoding.records.events import Event, ReopenEvent, StepEvent
from service.backend import backend
from service.commands.run.check import checked, refused
from service.commands.run.events import Committed, FailedError, Reopened, Watch
from service.config.settings import Settings
from service.generation import replies
from service.generation.prepare import prepare
from service.http.errors import ApiError


def decode(
    body: dict[str, Any], *, model: str = "mini", device: str = "cpu", watch: Watch | None = None
) -> dict[str, Any]:
    """Answer `body` with a model loaded here, exactly as the server would; `watch` sees it grow.

    Raises `FailedError`.
    """
    settings = Settings(model=model, device=device)
    request = checked(body, settings.model)
    try:
        loaded = backend.load(settings)
    except (CheckpointError, RuntimeError) as error:
        raise FailedError(str(error)) from None
    with contextlib.closing(loaded.engine):
        try:
            prepared = prepare(request, loaded.model, loaded.gates, settings)
            handles = loaded.engine.submit_all(prepared.jobs)
            if watch is not None:
                _follow(handles, loaded.model, watch)
            outcomes = [handle.result() for handle in handles]
        except (ApiError, ValueError) as error:
            raise refused(error) from None
        except (DecodingError, RuntimeError) as error:
            raise FailedError(str(error)) from None
    return replies.response(prepared, outcomes, loaded.model).model_dump()


def _follow(handles: Sequence[Handle], model: DenoisingModel, watch: Watch) -> None:
    """Show the events of all samples, one sample after the other: they are decoded together, and each keeps its own."""
    for index, handle in enumerate(handles):
        if (start := handle.job.start) is not None:  # a template's text is there from the beginning
            watch(_told(index, ReopenEvent(0, 0, (), start, 0.0), model))
        for event in handle.stream():
            watch(_told(index, event, model))


def _told(index: int, event: Event, model: DenoisingModel) -> Committed | Reopened:
    pieces = model.codec.pieces
    if isinstance(event, StepEvent):
        return Committed(index, event.phase, event.positions, pieces(list(event.tokens)), event.filled)
    masked = model.spec.mask_id
    shown = pieces(list(event.canvas))
    return Reopened(
        index, [None if token == masked else piece for token, piece in zip(event.canvas, shown, strict=True)]
    )
