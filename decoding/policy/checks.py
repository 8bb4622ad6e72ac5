"""Checks of single policy fields, shared by the dataclasses that make up a policy."""

from __future__ import annotations

from decoding.constraints.text.suggestion import suggestion


class PolicyError(ValueError):
    """A policy that cannot be; `param` is the dotted path of the field at fault."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def within(param: str, value: float, low: float, high: float) -> None:
    """Raise unless `value` is a number from `low` to `high`, which are finite."""
    if not (isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high):
        raise PolicyError(param, f"must be a number from {low:g} to {high:g}")


def whole(param: str, value: object, minimum: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise PolicyError(param, f"must be a whole number of at least {minimum}")


def one_of(param: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `allowed`."""
    if value not in allowed:
        raise PolicyError(param, f"must be one of: {', '.join(allowed)}{suggestion(value, allowed)}")
