"""Small pieces of English shared by instructions and details."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """`count` and `noun`, with an s unless there is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def quoted(items: Sequence[str]) -> str:
    """Comma-separated list of quoted items."""
    return ", ".join(f"'{item}'" for item in items)


def word_range(low: int, high: int | None) -> str:
    """An instruction for a number of words."""
    if high is None:
        return f"Use at least {plural(low, 'word')}."
    if low == high:
        return f"Use exactly {plural(low, 'word')}."
    if low <= 1:
        return f"Use at most {plural(high, 'word')}."
    return f"Use between {low} and {high} words."
