"""What the helpers make: constraints, policies and gates, as values that become JSON when they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


def plain(value: Any) -> Any:
    """JSON types: specifications and tuples, however deep, become objects and arrays."""
    if isinstance(value, Spec):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, repr=False)
class Spec:
    """Fields of a JSON object; the field `key` says its kind. Equal where the fields are."""

    fields: Mapping[str, Any]
    key: ClassVar[str]
    """The field that says the kind."""

    @property
    def kind(self) -> str:
        """Name of the type, preset or source."""
        return str(self.fields[self.key])

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        spec: dict[str, Any] = plain(self.fields)
        return spec

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in self.fields.items() if name != self.key)
        return f"{self.kind}({', '.join(settings)})"

    def __hash__(self) -> int:
        return hash(repr(self))


class Constraint(Spec):
    """What a text must satisfy. `one & other` asks for both, `one | other` for either, `~one` for its contrary."""

    __slots__ = ()
    key = "type"

    def __and__(self, other: Constraint) -> Constraint:
        if not isinstance(other, Constraint):
            return NotImplemented
        return self._joined("all_of", other)

    def __or__(self, other: Constraint) -> Constraint:
        if not isinstance(other, Constraint):
            return NotImplemented
        return self._joined("any_of", other)

    def __invert__(self) -> Constraint:
        return Constraint({"type": "none_of", "constraints": (self,)})

    def _joined(self, kind: str, other: Constraint) -> Constraint:
        return Constraint({"type": kind, "constraints": (*self._parts(kind), *other._parts(kind))})

    def _parts(self, kind: str) -> tuple[ConstraintLike, ...]:
        return tuple(self.fields["constraints"]) if self.kind == kind else (self,)

    @property
    def members(self) -> tuple[ConstraintLike, ...]:
        """The parts of an `all_of`; of any other constraint, itself."""
        return self._parts("all_of")


class Policy(Spec):
    """How guidance is spent."""

    __slots__ = ()
    key = "preset"


class Gate(Spec):
    """What ends guidance."""

    __slots__ = ()
    key = "source"


ConstraintLike = Constraint | Mapping[str, Any]
"""A constraint of `astargate_client.constraints`, or its JSON object: a type that only the server knows."""
PolicyLike = Policy | Mapping[str, Any] | str
"""A policy of `astargate_client.policies`, its JSON object, or a short name: "auto", "value:k8"."""
GateLike = Gate | Mapping[str, Any] | str
"""A gate of `astargate_client.policies`, its JSON object, or a source's name, with its number: "fraction:0.3"."""
