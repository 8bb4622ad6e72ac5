"""What all bodies of the HTTP API share: base classes, size limits, field descriptions, and the body of an error."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

MAX_PROMPT_CHARACTERS = 100_000
MAX_CANVAS = 65_536
MAX_TRACE_STEPS = 4096
MAX_SEED = 2**53 - 1
"""Largest whole number that every JSON reader keeps exact."""


def choices(*names: str) -> dict[str, Any]:
    """JSON schema of one of `names`."""
    return {"enum": list(names)}


class Request(BaseModel):
    """Unknown fields, wrong types (true is no number, 1.0 no whole number), NaN and infinity are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Reply(BaseModel):
    """Base of everything that the server sends."""

    model_config = ConfigDict(use_attribute_docstrings=True, protected_namespaces=())


class ErrorDetail(Reply):
    message: str
    type: str
    param: str | None
    """Dotted path of the field at fault, such as policy.gate.fraction or constraint.keywords[1]."""
    code: str


class ErrorReply(Reply):
    """The body of every answer other than success."""

    error: ErrorDetail


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Attribute docstrings of a dataclass by field name, so that the API describes a field as the decoder does.

    Fields without a docstring are absent.
    """
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{cls} is not defined by a class statement")
    docs: dict[str, str] = {}
    for field, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = " ".join(text.split())
    return docs
