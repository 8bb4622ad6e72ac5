"""Wire type of a constraint, from the registry in `decoding.constraints`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from decoding.constraints import catalogue


def _constraint_schema() -> dict[str, Any]:
    kinds = [
        {"title": entry["type"], "description": entry["description"], **entry["schema"], "examples": [entry["example"]]}
        for entry in catalogue()
    ]
    return {"oneOf": kinds, "description": "What the text must satisfy; GET /v1/constraints describes every type."}


ConstraintObject = Annotated[dict[str, Any], WithJsonSchema(_constraint_schema())]
