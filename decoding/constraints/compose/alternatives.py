"""any_of and none_of: at least one of several constraints holds, or none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from decoding.constraints.base.constraint import Check, Constraint, ConstraintError, register
from decoding.constraints.compose.all_of import AllOf, Composition, contradiction
from decoding.constraints.paper.keywords import Keywords


@register
@dataclass(frozen=True, slots=True)
class AnyOf(Composition):
    """At least one member holds; the score is the best member's.

    Raises ConstraintError where two members are equal.
    """

    type: ClassVar[str] = "any_of"
    summary: ClassVar[str] = "At least one of several constraints holds."

    def _check_members(self, members: tuple[Constraint, ...]) -> None:
        _check_distinct(members)

    def _checks(self, text: str) -> tuple[Check, ...]:
        verdicts = [member.evaluate(text) for member in self.constraints]
        best = max(range(len(verdicts)), key=lambda index: verdicts[index].score)
        name = f"any of: {', '.join(member.type for member in self.constraints)}"
        chosen, kind = verdicts[best], self.constraints[best].type
        missing = "; ".join(check.detail for check in chosen.checks if not check.satisfied)
        detail = f"{kind} holds" if chosen.satisfied else f"closest is {kind}: {missing}"
        return (Check.graded(name, chosen.satisfied, chosen.score, detail),)

    def instruction(self) -> str:
        return f"Either {'; or '.join(map(inline, self.constraints))}."

    def required_text(self) -> tuple[str, ...]:
        return self.constraints[0].required_text() if len(self.constraints) == 1 else ()

    def minimum_words(self) -> int:
        return min(member.minimum_words() for member in self.constraints)

    def maximum_words(self) -> int | None:
        limits = [member.maximum_words() for member in self.constraints]
        return None if None in limits else max(limit for limit in limits if limit is not None)

    def usual_words(self) -> int:
        return max(member.usual_words() for member in self.constraints)

    def minimum_characters(self) -> int:
        return min(member.minimum_characters() for member in self.constraints)

    def always_holds(self) -> bool:
        return any(member.always_holds() for member in self.constraints)

    def excluded_by(self, other: Constraint) -> str | None:
        """All members are."""
        reasons = [contradiction(member, other) for member in self.constraints]
        return f"none of its members can hold: {reasons[0]}" if all(reasons) else None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return cls.members_schema("Constraints of any other type, no two equal.")

    @classmethod
    def example(cls) -> Self:
        return cls((Keywords(("dog", "beach")), Keywords(("cat", "garden"))))


@register
@dataclass(frozen=True, slots=True)
class NoneOf(Composition):
    """No member holds; the score is the share of members that do not.

    Raises ConstraintError where every text meets a member, or one of two members.
    """

    type: ClassVar[str] = "none_of"
    summary: ClassVar[str] = "None of several constraints holds."

    def _check_members(self, members: tuple[Constraint, ...]) -> None:
        _check_distinct(members)
        for index, member in enumerate(members):
            if member.always_holds():
                raise ConstraintError(f"constraints[{index}]", "holds for every text, so none_of can never be met")
            for earlier in range(index):
                if opposite(members[earlier], member):
                    reason = f"or constraints[{earlier}] holds for every text; keep one of the two"
                    raise ConstraintError(f"constraints[{index}]", reason)

    def _checks(self, text: str) -> tuple[Check, ...]:
        checks = []
        for index, member in enumerate(self.constraints):
            holds = member.evaluate(text).satisfied
            detail = f"{member.type} {'holds' if holds else 'does not hold'}"
            checks.append(Check.graded(f"not [{index}]: {member.type}", not holds, 0.0, detail))
        return tuple(checks)

    def instruction(self) -> str:
        return f"Do not do this: {'; '.join(map(inline, self.constraints))}."

    def excluded_by(self, other: Constraint) -> str | None:
        """A member is what the other demands."""
        demanded = other.constraints if isinstance(other, AllOf) else (other,)
        both = next((index for index, member in enumerate(self.constraints) if member in demanded), None)
        return None if both is None else f"its member {both} is demanded as well"

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return cls.members_schema("Constraints of any other type, no two equal; none of them may hold.")

    @classmethod
    def example(cls) -> Self:
        return cls((Keywords(("dog", "cat")), Keywords(("beach",))))


def inline(member: Constraint) -> str:
    """A member's instruction as a part of a sentence."""
    said = member.instruction().removesuffix(".").replace(". ", "; ")
    return said[0].lower() + said[1:]


def opposite(first: Constraint, second: Constraint) -> bool:
    """Whether every text meets one of the two: n or more and fewer than n occurrences, a phrase and its absence."""
    specs = [member.to_spec() for member in (first, second)]
    kinds = {first.type, second.type}
    differing = {name for name in specs[0].keys() | specs[1].keys() if specs[0].get(name) != specs[1].get(name)}
    if kinds == {"contains", "not_contains"}:
        return differing == {"type"} and len(specs[0]["phrases"]) == 1
    return len(kinds) == 1 and differing == {"relation"}


def _check_distinct(members: Sequence[Constraint]) -> None:
    for index, member in enumerate(members):
        if member in members[:index]:
            first = members.index(member)
            raise ConstraintError(f"constraints[{index}]", f"equals constraints[{first}]; list it once")
