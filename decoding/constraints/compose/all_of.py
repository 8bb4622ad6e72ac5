"""Compositions of constraints, and the one whose members all hold; `alternatives` has the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, ClassVar, Final, Self

from decoding.constraints.base import fields
from decoding.constraints.base.constraint import Alternatives, Check, Constraint, ConstraintError, Facts, register
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.length import LengthRatio
from decoding.constraints.text.phrases import standing_inside
from decoding.constraints.text.words import least_words_of, normalise, plural

MULTI_FAMILY = "ccg-multi"
MAX_DEPTH: Final = 3
"""Compositions within each other."""
MAX_LEAVES: Final = 64
"""Constraints of a composition in all."""


@dataclass(frozen=True, slots=True)
class Composition(Constraint):
    """Members and what they say together. A composition holds no other of its own type, and others two deep."""

    constraints: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        members = tuple(fields.array(self.constraints, "constraints", limit=fields.MAX_MEMBERS))
        for index, member in enumerate(members):
            if isinstance(member, type(self)):
                raise ConstraintError(f"constraints[{index}]", f"is an {self.type}; list its members here instead")
            if not isinstance(member, Constraint):
                raise ConstraintError(f"constraints[{index}]", "must be a constraint")
        fields.assign(self, constraints=members)
        if self.depth() > MAX_DEPTH:
            raise ConstraintError("constraints", f"are nested deeper than {MAX_DEPTH}; flatten them")
        if self.leaves() > MAX_LEAVES:
            raise ConstraintError("constraints", f"hold more than {MAX_LEAVES} constraints in all; use fewer")
        self._check_members(members)

    def _check_members(self, members: tuple[Constraint, ...]) -> None:
        """Raise ConstraintError where no text can satisfy the composition."""
        raise NotImplementedError

    def depth(self) -> int:
        """Compositions within each other, this one included."""
        return 1 + max(member.depth() if isinstance(member, Composition) else 0 for member in self.constraints)

    def leaves(self) -> int:
        """Constraints in it that are no compositions."""
        return sum(member.leaves() if isinstance(member, Composition) else 1 for member in self.constraints)

    def facts(self) -> Facts:
        parts = [member.facts() for member in self.constraints]
        return Facts(
            items=tuple(item for part in parts for item in part.items),
            low=sum(part.low for part in parts),
            high=sum(part.high for part in parts),
            at_least=sum(part.at_least for part in parts),
        )

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "constraints": [member.to_spec() for member in self.constraints]}

    @classmethod
    def members_schema(cls, description: str) -> dict[str, Any]:
        """JSON Schema of a composition with `description` of its members."""
        members = {
            "type": "array",
            "minItems": 1,
            "maxItems": fields.MAX_MEMBERS,
            "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
            "description": description,
        }
        return fields.object_schema(cls.type, {"constraints": members}, ["constraints"])


@register
@dataclass(frozen=True, slots=True)
class AllOf(Composition):
    """All members hold; the checks are the members' in order, and the score is the mean over those checks.

    Members are constraints other than all_of, no two equal. Raises ConstraintError when two of them exclude each other.
    """

    type: ClassVar[str] = "all_of"
    summary: ClassVar[str] = "Several constraints hold at once."
    families: ClassVar[tuple[str, ...]] = (MULTI_FAMILY,)

    def _check_members(self, members: tuple[Constraint, ...]) -> None:
        check_compatible(members)

    def _checks(self, text: str) -> tuple[Check, ...]:
        return tuple(check for member in self.constraints for check in member.evaluate(text).checks)

    @property
    def family(self) -> str | None:
        """ccg-multi for two or more keyword constraints, or keywords with a length ratio, and nothing else beside them.

        That is the paper's keywords_multi, J >= 2 keywords jointly, given as separate demands. A single member keeps
        its own family; any other mixture has no calibrated family.
        """
        if len(self.constraints) == 1:
            return self.constraints[0].family
        kinds = Counter(type(member) for member in self.constraints)
        known = kinds[Keywords] + kinds[LengthRatio] == len(self.constraints)
        return MULTI_FAMILY if known and kinds[Keywords] and kinds[LengthRatio] <= 1 else None

    def instruction(self) -> str:
        return " ".join(member.instruction() for member in self.constraints)

    def required_text(self) -> tuple[str, ...]:
        """Each phrase as often as the member that needs it most, without single phrases that stand inside another."""
        needed: Counter[str] = Counter()
        for member in self.constraints:
            needed |= Counter(member.required_text())
        inner = standing_inside(tuple(needed))
        kept: list[str] = []
        for phrase, times in needed.items():
            kept += [] if times == 1 and normalise(phrase) in inner else [phrase] * times
        return tuple(kept)

    def whole_words(self) -> tuple[Alternatives, ...]:
        return tuple(phrases for member in self.constraints for phrases in member.whole_words())

    def anywhere(self) -> tuple[str, ...]:
        return tuple(phrase for member in self.constraints for phrase in member.anywhere())

    def verbatim(self) -> tuple[str, ...]:
        return tuple(phrase for member in self.constraints for phrase in member.verbatim())

    def minimum_words(self) -> int:
        return least_words(self.constraints)

    def maximum_words(self) -> int | None:
        limits = [limit for member in self.constraints if (limit := member.maximum_words()) is not None]
        return min(limits, default=None)

    def usual_words(self) -> int:
        return max(self.minimum_words(), *(member.usual_words() for member in self.constraints))

    def minimum_characters(self) -> int:
        return max(2 * self.minimum_words() - 1, *(member.minimum_characters() for member in self.constraints))

    def always_holds(self) -> bool:
        return all(member.always_holds() for member in self.constraints)

    def excluded_by(self, other: Constraint) -> str | None:
        """A member is."""
        return next((reason for member in self.constraints if (reason := contradiction(member, other))), None)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return cls.members_schema("Constraints of any other type; they must not contradict each other.")

    @classmethod
    def example(cls) -> Self:
        return cls((Keywords(("dog", "beach")), LengthRatio.example()))


def contradiction(first: Constraint, second: Constraint) -> str | None:
    """Why no text can meet both, as far as either of them knows; None where one may."""
    for one, other in ((first, second), (second, first)):
        limit, needed = one.maximum_words(), other.minimum_words()
        if limit is not None and needed > limit:
            return f"at least {needed} and at most {limit} words are demanded"
        if reason := one.excluded_by(other):
            return reason
    return None


def least_words(members: Sequence[Constraint]) -> int:
    """Lower bound on the words of a text that satisfies all `members`."""
    keywords = [phrases for member in members if isinstance(member, Keywords) for phrases in member.whole_words()]
    return max(least_words_of(keywords), *(member.minimum_words() for member in members))


def check_compatible(members: Sequence[Constraint]) -> None:
    """Raise ConstraintError where no text can meet `members` together; of a pair it names the later member.

    Only certain contradictions are found: each member says what it demands of every text and what excludes it. Words
    joined by nothing but punctuation ("dog/ball") are not considered where words are counted.
    """
    _check_words(members)
    for first, second in permutations(range(len(members)), 2):
        equal = members[first] == members[second]
        reason = "the two are equal; keep one" if equal else members[second].excluded_by(members[first])
        if reason:
            later, earlier = max(first, second), min(first, second)
            raise ConstraintError(f"constraints[{later}]", f"contradicts constraints[{earlier}]: {reason}")
    for index, member in enumerate(members):
        if reason := member.excluded_by_all(members):
            raise ConstraintError(f"constraints[{index}]", reason)


def _check_words(members: Sequence[Constraint]) -> None:
    """Raise ConstraintError where a member allows fewer words than another needs, or all others together."""
    needs = [member.minimum_words() for member in members]
    together: int | None = None
    for index, member in enumerate(members):
        limit = member.maximum_words()
        if limit is None:
            continue
        for other_index, needed in enumerate(needs):
            if needed > limit:
                later, earlier = max(index, other_index), min(index, other_index)
                need = f"constraints[{other_index}] needs at least {plural(needed, 'word')}"
                reason = f"contradicts constraints[{earlier}]: {need}, constraints[{index}] allows at most {limit}"
                raise ConstraintError(f"constraints[{later}]", reason)
        together = least_words(members) if together is None else together
        if together > limit:
            raise ConstraintError(
                f"constraints[{index}]", f"allows at most {plural(limit, 'word')}; the others need {together}"
            )
