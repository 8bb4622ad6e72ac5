"""The one registry of constraint types: JSON object -> constraint, and the catalogue behind `/v1/constraints`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from decoding.constraints.base.constraint import REGISTRY, Constraint, ConstraintError

# isort: off
# Each file registers its constraints; the catalogue and the API's schema list them in this order.
from decoding.constraints.paper import keywords, length, sentiment, ifeval, collie, cognac  # noqa: F401
from decoding.constraints.compose import all_of, alternatives  # noqa: F401
from decoding.constraints.general import regex, substrings  # noqa: F401
from decoding.constraints.json import document  # noqa: F401
from decoding.constraints.general import sizes, labels, predicates  # noqa: F401

# isort: on
from decoding.constraints.base import fields
from decoding.constraints.compose.all_of import MAX_DEPTH, Composition
from decoding.constraints.paper.sentiment import Sentiment, SentimentScorer, shipped_sentiment
from decoding.constraints.text.suggestion import suggestion
from decoding.constraints.text.words import treebank_tokens

FAMILIES: Final[tuple[str, ...]] = (
    *("commongen-k3", "commongen-k4", "commongen-k5", "commongen-k10"),
    *("ccg-length", "ccg-sentiment", "ccg-multi"),
    *("ifeval-kw-freq", "ifeval-letter-freq", "ifeval-capital-freq", "ifeval-no-comma"),
    *("collie-c07", "collie-c06a", "cognac-avoidance"),
)
"""The families of the benchmarks. A request may name one of its own besides."""
FAMILY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a family may be called."""


@dataclass(frozen=True, slots=True)
class Scorers:
    """Scorers that replace the shipped ones in parsed constraints; None keeps the shipped one."""

    sentiment: SentimentScorer | None = None


def parse(spec: Mapping[str, Any], *, scorers: Scorers | None = None) -> Constraint:
    """The constraint that the JSON object `spec` describes.

    Raises ConstraintError, with the path of the culprit, for an unknown type, unknown, missing or wrong fields,
    values out of bounds, and constraints that no text can satisfy.
    """
    fields.check_size(spec)
    return _parsed(spec, scorers, 1)


def _parsed(spec: Mapping[str, Any], scorers: Scorers | None, depth: int) -> Constraint:
    cls = _class_of(spec)
    names = {field.name: field for field in dataclasses.fields(cls) if field.init and field.name != "scorer"}
    for name in spec:
        if name != "type" and name not in names:
            known = ", ".join(names) or "none"
            raise ConstraintError(
                str(name)[:80], f"is no field of {cls.type}; its fields: {known}{suggestion(name, names)}"
            )
    for name, field in names.items():
        if name not in spec and field.default is dataclasses.MISSING:
            raise ConstraintError(name, f"is missing; {cls.type} needs it")
    values = {name: spec[name] for name in names if name in spec}
    if issubclass(cls, Composition):
        values["constraints"] = _members(cls, values["constraints"], scorers, depth)
    if cls is Sentiment and scorers is not None:
        values["scorer"] = scorers.sentiment
    build: Callable[..., Constraint] = cls
    return build(**values)


def _class_of(spec: object) -> type[Constraint]:
    if not isinstance(spec, Mapping):
        raise ConstraintError("", "must be an object with a type")
    if "type" not in spec:
        raise ConstraintError("type", f"is missing; it must be one of {', '.join(REGISTRY)}")
    return REGISTRY[fields.choice(spec["type"], "type", tuple(REGISTRY))]


def _members(outer: type[Constraint], value: object, scorers: Scorers | None, depth: int) -> tuple[Constraint, ...]:
    if depth > MAX_DEPTH:
        raise ConstraintError("", f"is nested deeper than {MAX_DEPTH} compositions; flatten it")
    members: list[Constraint] = []
    for index, member in enumerate(fields.array(value, "constraints", limit=fields.MAX_MEMBERS)):
        place = f"constraints[{index}]"
        try:
            if _class_of(member) is outer:
                raise ConstraintError("", f"is an {outer.type}; list its members here instead")
            members.append(_parsed(member, scorers, depth + 1))
        except ConstraintError as error:
            raise error.under(place) from None
    return tuple(members)


def catalogue() -> list[dict[str, Any]]:
    """One entry per type: type, families, description, JSON schema, a valid example, its family and instruction."""
    entries = []
    for cls in REGISTRY.values():
        example = cls.example()
        entries.append(
            {
                "type": cls.type,
                "family": example.family,
                "families": list(cls.families),
                "description": cls.summary,
                "schema": cls.schema(),
                "example": example.to_spec(),
                "instruction": example.instruction(),
            }
        )
    return entries


def warm_up() -> None:
    """Load what the first evaluation would: the tokeniser (about a second), the sentiment weights, the predicates."""
    treebank_tokens("warm")
    shipped_sentiment()
    predicates.installed()
