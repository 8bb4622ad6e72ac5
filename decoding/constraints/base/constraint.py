"""What a constraint on a text is: the `Constraint` base class, its graded verdict, its one error and the registry.

A constraint is deterministic, judge-free and reads nothing but the finished text (paper, appendix "Constraint Families
and Success Predicates"). It answers twice: `satisfied`, the binary test of the paper, and `score`, a graded value in
[0, 1] that is 1.0 exactly when the test holds. An empty or white-space-only text satisfies no constraint: every check
of it fails with score 0 (IFEval does so explicitly; a decoder that says nothing has not met a request).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

LARGEST_PARTIAL = 1.0 - 1e-9
"""Ceiling of the score of an unmet check, so that rounding never turns "almost" into 1.0."""
Alternatives = tuple[str, ...]
"""Phrases; a satisfying text holds at least one of them."""


class ConstraintError(ValueError):
    """A constraint that is malformed or that no text can satisfy.

    `param` is the dotted path of the culprit relative to the constraint ("keywords[1]", "constraints[0].low"; "" for
    the constraint as a whole); `reason` says what to change.
    """

    def __init__(self, param: str, reason: str) -> None:
        self.param = param
        self.reason = reason
        super().__init__(f"{param}: {reason}" if param else reason)

    def under(self, prefix: str) -> ConstraintError:
        """The same error seen from one level up: `prefix` is put before `param`."""
        if not prefix or not self.param:
            return ConstraintError(prefix or self.param, self.reason)
        joint = "" if self.param.startswith("[") else "."
        return ConstraintError(f"{prefix}{joint}{self.param}", self.reason)

    def __reduce__(self) -> tuple[type[ConstraintError], tuple[str, str]]:
        return type(self), (self.param, self.reason)


@dataclass(frozen=True, slots=True)
class Check:
    """One named sub-test of a constraint; `score` in [0, 1] is 1.0 exactly when `satisfied`."""

    name: str
    satisfied: bool
    score: float
    detail: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0 or (self.score == 1.0) is not self.satisfied:
            raise ValueError(f"check {self.name!r}: score {self.score!r} does not fit satisfied={self.satisfied}")

    @classmethod
    def graded(cls, name: str, satisfied: bool, partial: float, detail: str) -> Check:
        """A check whose score is 1.0 when satisfied, else `partial` clipped into [0, 1)."""
        return cls(name, satisfied, 1.0 if satisfied else min(max(partial, 0.0), LARGEST_PARTIAL), detail)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A constraint's verdict on one text: all checks hold, and the mean of their scores (1.0 exactly when all hold)."""

    satisfied: bool
    score: float
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Verdict:
        """Combine `checks`; raises ValueError when there is none."""
        listed = tuple(checks)
        if not listed:
            raise ValueError("a verdict needs at least one check")
        satisfied = all(check.satisfied for check in listed)
        mean = sum(check.score for check in listed) / len(listed)
        return cls(satisfied, 1.0 if satisfied else min(mean, LARGEST_PARTIAL), listed)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a constraint asks for, in numbers that mean the same within a family; learned gates read them."""

    items: tuple[str, ...] = ()
    """What it lists: keywords, forbidden words, the source text."""
    low: float = 0.0
    """Its lower bound, count or threshold."""
    high: float = 0.0
    """Its upper bound."""
    at_least: int = 0
    """Relations `at_least` among its parts."""


class Constraint:
    """A test of the finished text. Subclasses are frozen dataclasses that are checked when they are made.

    This class holds the rule for blank texts and what a constraint says that demands nothing in particular.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]
    type: ClassVar[str]
    summary: ClassVar[str]
    families: ClassVar[tuple[str, ...]] = ()
    """Families that a constraint of this type may belong to, depending on its fields."""

    def evaluate(self, text: str) -> Verdict:
        """Judge the finished `text`; a blank one fails every check. Raises TypeError when it is not a string."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        checks = self._checks(text)
        if text.strip():
            return Verdict.of(checks)
        return Verdict.of(Check(check.name, False, 0.0, "the text is empty") for check in checks)

    def _checks(self, text: str) -> tuple[Check, ...]:
        raise NotImplementedError

    @property
    def family(self) -> str | None:
        """The family whose calibrated gates fit this constraint, or None when there is none."""
        return self.families[0] if len(self.families) == 1 else None

    def instruction(self) -> str:
        """The constraint in English, for the prompt: starts with a capital, ends with a full stop."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """What learned gates know of this constraint."""
        return Facts()

    # -- what every satisfying text holds ----------------------------------------------------------------------------

    def required_text(self) -> tuple[str, ...]:
        """Phrases that every satisfying text contains (case aside), a phrase repeated as often as it must occur."""
        return ()

    def whole_words(self) -> tuple[Alternatives, ...]:
        """Phrases demanded as whole words: a satisfying text holds at least one of each tuple."""
        return ()

    def anywhere(self) -> tuple[str, ...]:
        """Strings that every satisfying text contains, also inside words."""
        return ()

    def verbatim(self) -> tuple[str, ...]:
        """Strings that every satisfying text contains to the letter, also inside words."""
        return ()

    def minimum_words(self) -> int:
        """Lower bound, at least 1, on the white-space separated words of a satisfying text.

        Texts that join words by punctuation alone ("dog/ball/beach") are not considered.
        """
        return 1

    def maximum_words(self) -> int | None:
        """Upper bound on the white-space separated words of a satisfying text; None where there is none."""
        return None

    def usual_words(self) -> int:
        """Words that a satisfying text usually has at least; a canvas is chosen by them, and nothing is refused."""
        return self.minimum_words()

    def minimum_characters(self) -> int:
        """Lower bound on the characters of a satisfying text, outer white space aside; ligatures are not considered."""
        whole = (min(map(_letters, phrases)) for phrases in self.whole_words())
        return max(2 * self.minimum_words() - 1, *map(_letters, self.anywhere()), *whole, 1)

    def always_holds(self) -> bool:
        """Whether every text that is not blank satisfies it, for certain."""
        return False

    # -- what it contradicts: only certain contradictions are reported -----------------------------------------------

    def excluded_by(self, other: Constraint) -> str | None:
        """Why no text can satisfy this constraint where it has all that `other` demands; None where one may."""
        return None

    def excluded_by_all(self, members: Sequence[Constraint]) -> str | None:
        """Why no text can satisfy this constraint beside all of `members` (it is one of them), pairs aside."""
        return None

    # -- JSON --------------------------------------------------------------------------------------------------------

    def to_spec(self) -> dict[str, Any]:
        """The JSON object that `registry.parse` turns back into an equal constraint."""
        raise NotImplementedError

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """JSON Schema of the constraint's JSON object."""
        raise NotImplementedError

    @classmethod
    def example(cls) -> Self:
        """A valid constraint of this type, for documentation."""
        raise NotImplementedError


def _letters(phrase: str) -> int:
    """Letters and digits, which no comparison of this package ignores."""
    return sum(character.isalnum() for character in phrase)


REGISTRY: Final[dict[str, type[Constraint]]] = {}
"""Constraint class by its `type` in JSON."""
C = TypeVar("C", bound=Constraint)


def register(cls: type[C]) -> type[C]:
    """Class decorator: requests may ask for this constraint under its `type`."""
    REGISTRY[cls.type] = cls
    return cls
