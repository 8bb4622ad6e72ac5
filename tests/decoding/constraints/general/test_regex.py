"""Regular expressions: two modes, and time that does not explode."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints import ConstraintError, parse
from decoding.constraints.general.patterns import MAX_PATTERN, Pattern

ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", "a?", "b*", "(?:a|b)", "a{2}", "^", "$", r"\d", "(ab)+"])
PATTERNS = st.one_of(
    st.lists(ATOMS, min_size=1, max_size=4).map("".join),
    st.tuples(ATOMS, ATOMS).map("|".join),
)


def judged(text, pattern, **fields):
    return parse({"type": "regex", "pattern": pattern, **fields}).evaluate(text)


@settings(deadline=None)
@given(PATTERNS, st.text("ab1 ", max_size=6))
def test_it_agrees_with_re(pattern, text):
    compiled = Pattern(pattern)
    assert compiled.occurs(text) is bool(re.search(pattern, text))
    assert compiled.matches(text) is bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    ("pattern", "text", "mode", "score"),
    [
        (r"\d{4}-\d{2}", "in 2024-05 again", "search", 1.0),
        (r"\d{4}-\d{2}", "in 2024-05 again", "full", 0.5),
        (r"\d{4}-\d{2}", " 2024-05\n", "full", 1.0),
        (r"\d{4}-\d{2}", "in 202-05", "search", 0.0),
        ("a|b", "ab", "full", 0.5),
        ("(?i)dear", "DEAR Ann", "search", 1.0),
        (r"\bdog\b", "dogs", "search", 0.0),
        (r"^\p{Lu}", "\u00c9t\u00e9", "search", 1.0),
        ("a.b", "a\nb", "search", 0.0),
    ],
)
def test_modes(pattern, text, mode, score):
    assert judged(text, pattern, mode=mode).score == score


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*.*.*.*.*.*)=", r"(\w+\s?)+:$"])
def test_patterns_that_backtracking_never_finishes_take_no_time(pattern):
    started = time.process_time()
    assert not judged("a" * 20_000 + "!", pattern, mode="full").satisfied
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "a)|(?:b",
        r"(a)\1",
        "a(?=b)",
        "(?<!a)b",
        "a{1000}{1000}",
        "*",
        "(?x)a #",
        "x" * (MAX_PATTERN + 1),
        "",
        3,
    ],
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(ConstraintError) as caught:
        parse({"type": "regex", "pattern": pattern})
    assert caught.value.param == "pattern"
    assert len(caught.value.reason) < 200


@pytest.mark.parametrize(
    ("field", "value"), [("mode", "match"), ("mode", None), ("meaning", ""), ("meaning", "x" * 201)]
)
def test_other_faults_are_named(field, value):
    with pytest.raises(ConstraintError) as caught:
        parse({"type": "regex", "pattern": "a", field: value})
    assert caught.value.param == field


def test_instructions_prefer_words():
    assert parse({"type": "regex", "pattern": "a+"}).instruction() == "The text must match the pattern a+."
    full = parse({"type": "regex", "pattern": "a+", "mode": "full", "meaning": "some\n a's"})
    assert full.instruction() == "The text must be some a's."


def test_lone_surrogates_are_read():
    assert judged("\ud800 a", "a").satisfied
