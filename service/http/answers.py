"""Errors become answers: the decoder's own as statuses, others as a 500 that the log explains."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from decoding.constraints import ConstraintError
from decoding.engine.engine import EngineClosedError
from decoding.engine.handle import DecodingError
from decoding.engine.scheduler import QueueFullError
from decoding.policy.checks import PolicyError
from decoding.request.validation import JobError
from service.http.disconnect import ClientGoneError
from service.http.errors import SHOWN, ApiError, draining, from_validation, internal, invalid
from service.storage.errors import DatabaseError

logger = logging.getLogger(__name__)

CLIENT_GONE: Final = 499
"""Status of an answer that nobody reads, for the access log."""
_CODES: Final[Mapping[int, str]] = {404: "not_found", 405: "method_not_allowed"}


def from_exception(error: Exception) -> ApiError | None:
    """The answer to one of the decoder's own errors; None for others."""
    match error:
        case ApiError():
            answer = error
        case PolicyError():
            answer = invalid(f"policy.{error.param}", str(error))
        case ConstraintError():
            full = error.under("constraint")
            answer = invalid(full.param, full.reason, "invalid_constraint")
        case JobError():
            answer = invalid(error.param, str(error))
        case QueueFullError():
            seconds = str(math.ceil(error.retry_after))
            answer = ApiError(429, str(error), code="queue_full", headers={"Retry-After": seconds})
        case EngineClosedError():
            answer = draining()
        case DatabaseError():
            answer = ApiError(
                503, "the database cannot be reached", code="database_unavailable", headers={"Retry-After": "5"}
            )
        case DecodingError(reason="deadline"):
            answer = ApiError(504, str(error), code="deadline_exceeded", param="deadline_s")
        case _:
            return None
    return answer


def request_id(scope: Any) -> str:
    """The id that `middleware` gave the request of `scope`."""
    return str(scope["state"]["request_id"])


def answer_to(error: Exception, scope: Any) -> ApiError:
    """The answer to any error; one that the client cannot help is named by the request's id alone, and logged under
    it.
    """
    known = from_exception(error)
    if known is not None:
        return known
    identity = request_id(scope)
    logger.error("request %s failed: %s: %s", identity, type(error).__name__, error, exc_info=error)
    return internal(identity)


def install(app: FastAPI) -> None:
    """Answer every error of `app` with the one body; unexpected exceptions are `middleware`'s business."""

    async def validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # registered for it alone
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if error.errors()[0]["loc"] == ("body",) and not content_type.endswith(("/json", "+json")):
            message = "the body must be JSON, sent with the header Content-Type: application/json"
            return ApiError(400, message, code="not_json").response()
        body = getattr(request.scope.get("route"), "body_field", None)
        return from_validation(error.errors(), body and body.field_info.annotation).response()

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # registered for it alone
        code = _CODES.get(error.status_code, "not_json" if error.status_code == 400 else "http_error")
        messages = {
            400: "the body is not JSON that can be read: it must be UTF-8, nested at most a few hundred levels, and no "
            "number may have thousands of digits",
            404: f"there is nothing at {request.url.path[:SHOWN]}; /docs lists the paths",
            405: f"{request.method[:20]} is not allowed here",
        }
        message = messages.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, message, code=code, headers=error.headers).response()

    async def known(request: Request, error: Exception) -> Response:
        return answer_to(error, request.scope).response()

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)
    for departure in (ClientGoneError, ClientDisconnect):
        app.add_exception_handler(departure, gone)
    decoder = PolicyError, ConstraintError, JobError, QueueFullError, EngineClosedError, DecodingError
    for kind in (ApiError, DatabaseError, *decoder):
        app.add_exception_handler(kind, known)
