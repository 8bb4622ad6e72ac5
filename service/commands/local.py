"""`astargate generate` without a server: the model is loaded and the prompt decoded in this process."""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import ValidationError

from decoding.engine.handle import DecodingError
from decoding.models.checkpoint import CheckpointError
from service.backend import backend
from service.commands.remote import FailedError
from service.config.settings import Settings
from service.generation import replies
from service.generation.prepare import prepare
from service.http.errors import from_validation
from service.schemas.generate import GenerateRequest


def decode(body: dict[str, Any], *, model: str = "mini", device: str = "cpu") -> dict[str, Any]:
    """Answer `body` with a model loaded here, exactly as the server would. Raises `FailedError`."""
    settings = Settings(model=model, device=device)
    try:
        request = GenerateRequest.model_validate(body)
    except ValidationError as error:
        located = [{**detail, "loc": ("body", *detail["loc"])} for detail in error.errors()]
        raise FailedError(str(from_validation(located))) from None
    if request.audit_share is not None:
        raise FailedError("audit_share needs a server: nothing is audited here")
    try:
        loaded = backend.load(settings)
    except (CheckpointError, RuntimeError) as error:
        raise FailedError(str(error)) from None
    with contextlib.closing(loaded.engine):
        try:
            prepared = prepare(request, loaded.model, loaded.gates, settings)
            outcomes = [handle.result() for handle in loaded.engine.submit_all(prepared.jobs)]
        except (DecodingError, ValueError, RuntimeError) as error:
            from service.http.answers import from_exception  # noqa: PLC0415  (loads FastAPI)

            raise FailedError(str(from_exception(error) or error)) from None
    return replies.response(prepared, outcomes, loaded.model).model_dump()
