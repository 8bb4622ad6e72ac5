"""any_of and none_of: verdicts, scores, what is refused, and how compositions nest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints import ConstraintError, parse
from decoding.constraints.text.words import written_words
from tests.decoding.constraints.test_registry import SPECS, TEXTS

DOG, CAT = ({"type": "keywords", "keywords": [word]} for word in ("dog", "cat"))
NO_COMMA = {"type": "no_comma"}


def of(kind, *members):
    return {"type": kind, "constraints": list(members)}


@settings(deadline=None)
@given(st.lists(SPECS, min_size=1, max_size=3), TEXTS)
def test_verdicts_follow_the_members(specs, text):
    if len({parse(spec) for spec in specs}) < len(specs):
        return
    outcomes = [parse(spec).evaluate(text) for spec in specs]
    either = parse(of("any_of", *specs))
    verdict = either.evaluate(text)
    assert verdict.satisfied is any(outcome.satisfied for outcome in outcomes)
    assert verdict.score == max(outcome.score for outcome in outcomes)
    assert parse(either.to_spec()) == either
    if verdict.satisfied:
        limit = either.maximum_words()
        assert limit is None or len(written_words(text)) <= limit
        assert len(text.strip()) >= either.minimum_characters() or "/" in text
    try:
        neither = parse(of("none_of", *specs))
    except ConstraintError:
        assert not text.strip() or any(outcome.satisfied for outcome in outcomes)
        return
    verdict = neither.evaluate(text)
    assert verdict.satisfied is (bool(text.strip()) and not any(outcome.satisfied for outcome in outcomes))
    assert parse(neither.to_spec()) == neither


@settings(deadline=None)
@given(SPECS, SPECS, TEXTS)
def test_what_is_refused_within_all_of_no_text_meets(first, second, text):
    for inner in (of("any_of", first), of("none_of", first)):
        try:
            parse(of("all_of", inner, second))
        except ConstraintError:
            if (
                parse(first) != parse(second)
                and inner["type"] == "any_of"
                and "keywords" not in {first["type"], second["type"]}
            ):
                assert not (parse(first).evaluate(text).satisfied and parse(second).evaluate(text).satisfied)
            if inner["type"] == "none_of":
                assert parse(first).evaluate(text).satisfied or not parse(second).evaluate(text).satisfied


def test_details_name_the_closest_member():
    verdict = parse(of("any_of", {"type": "keywords", "keywords": ["dog", "sun"]}, CAT)).evaluate("A dog.")
    assert verdict.score == 0.5
    assert verdict.checks[0].detail == "closest is keywords: 'sun' is missing"
    assert parse(of("none_of", DOG, CAT)).evaluate("A dog.").score == 0.5


def test_instructions():
    assert parse(of("any_of", DOG, NO_COMMA)).instruction() == "Either use the words: dog; or do not use any commas."
    assert parse(of("none_of", DOG, CAT)).instruction() == "Do not do this: use the words: dog; use the words: cat."


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        (of("any_of"), "constraints"),
        (of("any_of", DOG, DOG), "constraints[1]"),
        (of("none_of", DOG, DOG), "constraints[1]"),
        (of("any_of", of("any_of", DOG)), "constraints[0]"),
        (of("any_of", of("all_of", of("any_of", of("none_of", DOG)))), "constraints[0].constraints[0].constraints[0]"),
        (of("any_of", DOG, {"type": "nope"}), "constraints[1].type"),
        (of("none_of", {"type": "word_count", "min_words": 1}), "constraints[0]"),
        (of("none_of", {"type": "characters"}), "constraints[0]"),
        (of("none_of", of("any_of", DOG, {"type": "characters"})), "constraints[0]"),
        (of("none_of", *({"type": kind, "phrases": ["x"]} for kind in ("contains", "not_contains"))), "constraints[1]"),
        (
            of(
                "none_of",
                *(
                    {"type": "letter_frequency", "letter": "e", "relation": relation, "count": 2}
                    for relation in ("at_least", "less_than")
                ),
            ),
            "constraints[1]",
        ),
        (of("all_of", of("none_of", DOG), DOG), "constraints[1]"),
        (of("all_of", DOG, of("none_of", CAT, DOG)), "constraints[1]"),
        (
            of(
                "all_of",
                {"type": "word_count", "min_words": 0, "max_words": 1},
                of("any_of", {"type": "word_count", "min_words": 2}, {"type": "word_count", "min_words": 3}),
            ),
            "constraints[1]",
        ),
        (
            of(
                "all_of",
                {"type": "not_contains", "phrases": ["a"]},
                of("any_of", CAT, {"type": "contains", "phrases": ["bar"]}),
            ),
            "constraints[1]",
        ),
        (of("all_of", of("all_of", DOG)), "constraints[0]"),
    ],
    ids=str,
)
def test_faults_are_named(spec, param):
    with pytest.raises(ConstraintError) as caught:
        parse(spec)
    assert caught.value.param == param


def test_nesting_and_size_are_bounded():
    nested = DOG
    for depth in range(2000):
        nested = of(("any_of", "all_of")[depth % 2], nested)
    with pytest.raises(ConstraintError, match="nested deeper"):
        parse(nested)
    many = [of("any_of", *({"type": "keywords", "keywords": [f"w{n}{m}"]} for m in range(16))) for n in range(5)]
    parse(of("all_of", *many[:4]))
    with pytest.raises(ConstraintError, match="more than 64"):
        parse(of("all_of", *many))


def test_one_alternative_that_fits_is_enough():
    spec = of("all_of", {"type": "not_contains", "phrases": ["cat"]}, of("any_of", CAT, of("all_of", DOG, NO_COMMA)))
    assert parse(spec).evaluate("A dog.").satisfied
    assert not parse(spec).evaluate("A dog, a cow.").satisfied
