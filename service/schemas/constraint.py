"""Wire type of a constraint, from the registry in `decoding.constraints`."""

from __future__ import annotations

from typing import Annotated, Any

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


class _Described:
    """Describes every type where the schema is written, not where a body is read: some need a tokenizer to load."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return _constraint_schema()


ConstraintObject = Annotated[dict[str, Any], _Described()]
