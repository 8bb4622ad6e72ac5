"""Wire type of a constraint, from the registry in `decoding.constraints`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from decoding.constraints import FAMILIES, catalogue
from decoding.constraints.registry import FAMILY_NAME


def _constraint_schema() -> dict[str, Any]:
    kinds = [
        {"title": entry["type"], "description": entry["description"], **entry["schema"], "examples": [entry["example"]]}
        for entry in catalogue()
    ]
    return {"oneOf": kinds, "description": "What the text must satisfy; GET /v1/constraints describes every type."}


FAMILY_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": f"^{FAMILY_NAME.pattern}$", "examples": list(FAMILIES)},
        {"type": "null"},
    ]
}
"""JSON Schema of a family's name."""

ConstraintObject = Annotated[dict[str, Any], WithJsonSchema(_constraint_schema())]
