"""What a success predicate is: the `Constraint` protocol, its graded results and its one error.

A predicate is deterministic, judge-free and reads nothing but the finished text (paper, appendix "Constraint Families
and Success Predicates"). It answers twice: `satisfied`, the binary test of the paper, and `score`, a graded value in
[0, 1] that is 1.0 exactly when the test holds. An empty or white-space-only text satisfies no constraint: every check
of it fails with score 0 (IFEval does so explicitly; a decoder that says nothing has not met a request).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

LARGEST_PARTIAL = 1.0 - 1e-9
"""Ceiling of the score of an unmet check, so that rounding never turns "almost" into 1.0."""


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
            raise ValueError("an outcome needs at least one check")
        satisfied = all(check.satisfied for check in listed)
        mean = sum(check.score for check in listed) / len(listed)
        return cls(satisfied, 1.0 if satisfied else min(mean, LARGEST_PARTIAL), listed)


@runtime_checkable
class Constraint(Protocol):
    """A success predicate. Implemented by frozen dataclasses that are validated when they are made."""

    type: ClassVar[str]

    def evaluate(self, text: str) -> Verdict:
        """Judge the finished `text`."""
        ...

    @property
    def family(self) -> str | None:
        """The family whose calibrated gates fit this constraint, or None when there is none."""
        ...

    def instruction(self) -> str:
        """The constraint in English, for the prompt: starts with a capital, ends with a full stop."""
        ...

    def required_text(self) -> tuple[str, ...]:
        """Phrases that every satisfying text contains (case aside), a phrase repeated as often as it must occur."""
        ...

    def minimum_words(self) -> int:
        """Lower bound, at least 1, on the white-space separated words of a satisfying text.

        Texts that join words by punctuation alone ("dog/ball/beach") are not considered.
        """
        ...

    def to_spec(self) -> dict[str, Any]:
        """The JSON object that `registry.parse` turns back into an equal constraint."""
        ...


class Predicate:
    """Shared body of the constraints: the blank-text rule, and defaults for what a constraint does not require."""

    __slots__ = ()
    type: ClassVar[str]
    summary: ClassVar[str]

    def evaluate(self, text: str) -> Verdict:
        """Judge `text`; a blank one fails every check. Raises TypeError when it is not a string."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        checks = self._checks(text)
        if text.strip():
            return Verdict.of(checks)
        return Verdict.of(Check(check.name, False, 0.0, "the text is empty") for check in checks)

    def _checks(self, text: str) -> tuple[Check, ...]:
        raise NotImplementedError

    def required_text(self) -> tuple[str, ...]:
        return ()

    def minimum_words(self) -> int:
        return 1

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """JSON Schema of the constraint's JSON object."""
        raise NotImplementedError

    @classmethod
    def example(cls) -> Self:
        """A valid constraint of this type, for documentation."""
        raise NotImplementedError
