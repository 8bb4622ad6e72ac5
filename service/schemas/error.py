"""The one body of every answer other than success."""

from __future__ import annotations

from service.schemas.base import Reply


class ErrorDetail(Reply):
    message: str
    type: str
    param: str | None
    """Dotted path of the field at fault, such as policy.gate.fraction or constraint.keywords[1]."""
    code: str


class ErrorReply(Reply):
    """The body of every answer other than success."""

    error: ErrorDetail
