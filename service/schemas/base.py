"""Bases of the wire types, and the limits that JSON and this server set to any request."""

from __future__ import annotations

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
