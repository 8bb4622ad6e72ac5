"""Tests in Python that the operator of a server installs; requests name them and never send code.

A package registers a function of the text under the entry point group `astargate.predicates`. The function answers with
a bool, or with a score in [0, 1], where only 1 is success. It must be deterministic, quick and safe in any thread. Its
attribute `instruction`, where it has one, is the sentence for the prompt; the first line of its docstring describes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, register
from decoding.constraints.text.words import normalise, runs

GROUP: Final = "astargate.predicates"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Predicate:
    """An installed test of a text."""

    name: str
    description: str
    instruction: str
    function: Callable[[str], Any]


def no_repeats(text: str) -> float:
    """No word stands twice in a row; the score is the share of words that do not repeat the one before."""
    words = runs(normalise(text))
    repeats = sum(first == second for first, second in pairwise(words))
    return 1.0 - repeats / max(len(words), 1)


def _predicate(name: str, function: Callable[[str], Any]) -> Predicate:
    said = getattr(function, "instruction", None)
    instruction = said if isinstance(said, str) and said.strip() else f"The text must pass the check {name}."
    lines = (function.__doc__ or "").strip().splitlines()
    return Predicate(name, lines[0] if lines else instruction, _sentence(instruction), function)


def _sentence(said: str) -> str:
    plain = " ".join(said.split())
    return plain[0].upper() + plain[1:].removesuffix(".") + "."


@cache
def installed() -> Mapping[str, Predicate]:
    """The predicates by name, the built-in one first. What cannot be loaded is logged and left out."""
    about = "No word stands twice in a row."
    predicates = {"no_repeats": Predicate("no_repeats", about, "Do not write a word twice in a row.", no_repeats)}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if reason := _refusal(point, predicates):
            _LOG.warning("predicate %r (%s) is left out: %s", point.name, point.value, reason)
            continue
        try:
            function = point.load()
        except (Exception, SystemExit):
            _LOG.exception("predicate %r (%s) cannot be loaded and is left out", point.name, point.value)
            continue
        if not callable(function):
            _LOG.warning("predicate %r (%s) is no function and is left out", point.name, point.value)
            continue
        predicates[point.name] = _predicate(point.name, function)
    return MappingProxyType(predicates)


def _refusal(point: EntryPoint, known: Mapping[str, Predicate]) -> str | None:
    if not _NAME.fullmatch(point.name):
        return "a name has up to 64 letters, digits, dots, hyphens and underscores"
    return "another one has this name" if point.name in known else None


@register
@dataclass(frozen=True, slots=True)
class Python(Constraint):
    """The predicate `name` of this server holds; the score is the predicate's. One that raises counts as failed."""

    type: ClassVar[str] = "python"
    summary: ClassVar[str] = "A predicate that is installed on the server holds; GET /v1/constraints lists them."

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in installed():
            fields.text(self.name, "name", limit=64)
            known = ", ".join(installed())[:400]
            raise ConstraintError("name", f"is {self.name!r}, which is not installed on this server; it has: {known}")

    def _checks(self, text: str) -> tuple[Check, ...]:
        name = f"python: {self.name}"
        try:
            score = float(installed()[self.name].function(text))
        except (Exception, SystemExit) as fault:
            _LOG.exception("predicate %r failed", self.name)
            return (Check.graded(name, False, 0.0, f"the predicate failed: {type(fault).__name__}"),)
        if not 0.0 <= score <= 1.0:
            return (Check.graded(name, False, 0.0, f"the predicate answered {score}, which is no score"),)
        return (Check.graded(name, score == 1.0, score, f"score {score:.3g}"),)

    def instruction(self) -> str:
        return installed()[self.name].instruction

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "name": self.name}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        name = {"type": "string", "minLength": 1, "maxLength": 64}
        return fields.object_schema(
            cls.type, {"name": {**name, "description": "A predicate that this server has installed."}}, ["name"]
        )

    @classmethod
    def example(cls) -> Self:
        return cls("no_repeats")
