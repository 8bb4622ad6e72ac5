"""Stop strings: where a text ends, what a stream may already send of it, and which tokens are left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.generation.stop import before_stop, certain, tokens_before_stop

LETTERS = st.text("abc", max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


class Letters:
    """A codec of one letter a token."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(number) for number in ids)


@pytest.mark.parametrize(
    ("text", "stop", "left"),
    [
        ("A dog. A cat.", [". "], "A dog"),
        ("A dog. A cat.", ["cat", " dog"], "A"),
        ("A dog", ["cat"], "A dog"),
        ("A dog", ["A"], ""),
        ("A dog", [], "A dog"),
    ],
)
def test_a_text_ends_before_the_first_stop(text: str, stop: list[str], left: str) -> None:
    assert before_stop(text, stop) == left


@given(LETTERS, LETTERS, STOPS)
def test_what_a_stream_sends_stays(text: str, more: str, stop: list[str]) -> None:
    assert before_stop(text + more, stop).startswith(certain(text, stop))


@given(LETTERS, STOPS)
def test_a_stream_waits_for_no_more_than_a_stop_string(text: str, stop: list[str]) -> None:
    """Nothing is held back but the possible beginning of a stop string."""
    held = len(before_stop(text, stop)) - len(certain(text, stop))
    assert held < max(map(len, stop), default=1)


@given(LETTERS, STOPS)
def test_the_tokens_are_those_of_the_text_that_is_left(text: str, stop: list[str]) -> None:
    count = tokens_before_stop([ord(letter) for letter in text], stop, Letters())  # type: ignore[arg-type]
    assert text[:count] == before_stop(text, stop)
