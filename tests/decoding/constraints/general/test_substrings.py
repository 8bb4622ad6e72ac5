"""Phrases at any place and at the ends, labels, and ranges of characters and sentences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints import ConstraintError, parse
from decoding.constraints.general.sizes import sentences
from decoding.constraints.general.substrings import occurs

SHORT = st.text("abA é'.ß", min_size=1, max_size=4).filter(str.strip)


def of(kind, **fields):
    return parse({"type": kind, **fields})


def holds(text, kind, **fields):
    return of(kind, **fields).evaluate(text).satisfied


@pytest.mark.parametrize(
    ("phrase", "text", "inside", "as_words", "exact"),
    [
        ("cat", "An education.", True, False, True),
        ("cat", "The CAT sat.", True, True, False),
        ("cat", "A cat, twice: cat.", True, True, True),
        ("cat", "cats and one cat", True, True, True),
        ("free of charge", "It is free\n of  charge!", True, True, True),
        ("c++", "objc++ or C++.", True, True, True),
        (".net", "asp.net", True, True, True),
        ("caf\u00e9", "a cafe\u0301", True, True, True),
        ("don't", "I don\u2019t", True, True, False),
        ("dog", "a cat", False, False, False),
    ],
)
def test_where_a_phrase_counts(phrase, text, inside, as_words, exact):
    for kind, wanted in (("contains", True), ("not_contains", False)):
        assert holds(text, kind, phrases=[phrase]) is (inside is wanted)
        assert holds(text, kind, phrases=[phrase], inside_words=False) is (as_words is wanted)
        assert holds(text, kind, phrases=[phrase], case_sensitive=True) is (exact is wanted)


def test_phrases_are_graded():
    held = of("contains", phrases=["dog", "cat", "sun", "sea"]).evaluate("A dog in the sun")
    assert (held.satisfied, held.score) == (False, 0.5)
    assert [check.name for check in held.checks if not check.satisfied] == ["contains: cat", "contains: sea"]
    assert of("not_contains", phrases=["dog", "cat"]).evaluate("dog, cat").score == pytest.approx(1 / 3)
    assert of("starts_with", phrase="Dear").evaluate("Deal").score == 0.75
    assert of("ends_with", phrase="you.").evaluate("See you").score == 0.0
    assert of("ends_with", phrase="you.").evaluate("See Joe ou.").score == 0.75
    assert of("starts_with", phrase="Dear").evaluate("De").score == 0.5


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [("Dear Ann. Thanks.", True, True), ("  dear ann. THANKS. \n", True, True), ("Oh dear", False, False)],
)
def test_ends(text, start, end):
    assert holds(text, "starts_with", phrase="Dear") is start
    assert holds(text, "ends_with", phrase="thanks.") is end


def test_ends_mind_the_case_when_asked():
    assert not holds("dear Ann", "starts_with", phrase="Dear", case_sensitive=True)
    assert holds("Dear Ann", "starts_with", phrase="Dear", case_sensitive=True)
    assert not holds("Bye.", "ends_with", phrase="bye.", case_sensitive=True)


@settings(deadline=None)
@given(SHORT, st.text("abA é'.ß \n", max_size=12))
def test_contains_and_not_contains_are_contraries(phrase, text):
    for sensitive in (False, True):
        for inside in (False, True):
            flags = {"phrases": [phrase], "case_sensitive": sensitive, "inside_words": inside}
            if text.strip():
                assert holds(text, "contains", **flags) is not holds(text, "not_contains", **flags)


@settings(deadline=None)
@given(SHORT, st.text("ab .", max_size=6))
def test_what_starts_or_ends_with_a_phrase_contains_it(phrase, text):
    for kind, whole in (("starts_with", f"{phrase}{text}"), ("ends_with", f"{text}{phrase}")):
        for sensitive in (False, True):
            fields = {"phrase": phrase.strip(), "case_sensitive": sensitive}
            if holds(whole, kind, **fields):
                assert holds(whole, "contains", phrases=[phrase], case_sensitive=sensitive)
            if whole.strip() == whole:
                assert holds(whole, kind, phrase=phrase, case_sensitive=True) or phrase.strip() != phrase


@given(st.text("ab ", min_size=1, max_size=3), st.text("ab ", max_size=10))
def test_whole_phrases_are_a_part_of_all_occurrences(phrase, text):
    assert occurs(phrase, text, inside_words=True) is (phrase in text)
    if occurs(phrase, text, inside_words=False):
        assert phrase in text
    assert occurs(phrase, f"({phrase})", inside_words=False)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3),
        ("One", 1),
        ("Dr. Smith met J. Doe. They ate 3.5 pies!", 2),
        ("Say no. Then go.", 2),
        ("It was I. You know.", 2),
        ("He said \u201cGo.\u201d She went.", 2),
        ("Wait... What?!", 2),
        ("...", 0),
        ("see example.com for more", 1),
        ("a dog runs . a cat sleeps .", 2),
        ("A title\n\nA line", 2),
        ("one line\nthe same sentence", 1),
        ("\u597d\u3002\u597d\u3002", 2),
    ],
)
def test_sentences(text, count):
    assert len(sentences(text)) == count


@given(st.text(max_size=40))
def test_sentences_lose_no_word(text):
    assert "".join("".join(sentences(text)).split()) in "".join(text.split()) or len(sentences(text)) > 1
    assert sum(map(len, sentences(text))) <= len(text)


@pytest.mark.parametrize(("text", "score"), [("ab", 0.5), ("abcd", 1.0), (" caf\u0065\u0301 ", 1.0), ("a" * 12, 0.5)])
def test_characters(text, score):
    assert of("characters", min_characters=4, max_characters=6).evaluate(text).score == score


def test_ranges_fall_with_the_distance():
    scores = [of("sentences", min_sentences=2, max_sentences=3).evaluate("A b. " * n).score for n in range(1, 7)]
    assert scores == [0.5, 1.0, 1.0, 0.75, 0.6, 0.5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("yes", True), ("Yes.", True), (" NO ", True), ("not  sure", True), ("Not Sure", True), ("yes, no", False),
     ("yEs", False), ("yes!", False), ("maybe", False), ("yes..", False)],
)  # fmt: skip
def test_labels(text, expected):
    assert holds(text, "one_of", labels=["Yes", "no", "not sure"]) is expected


def test_a_label_within_more_text_is_half_a_label():
    assert of("one_of", labels=["yes", "no"]).evaluate("Well, yes").score == pytest.approx(3 / 9)
    assert of("one_of", labels=["yes", "no"]).evaluate("know").score == 0.0


FAULTS = [
    ({"type": "contains", "phrases": []}, "phrases"),
    ({"type": "contains", "phrases": "dog"}, "phrases"),
    ({"type": "contains", "phrases": ["dog", " "]}, "phrases[1]"),
    ({"type": "contains", "phrases": ["dog", "DOG"]}, "phrases[1]"),
    ({"type": "contains", "phrases": ["dog"], "case_sensitive": 1}, "case_sensitive"),
    ({"type": "not_contains", "phrases": ["dog"], "inside_words": None}, "inside_words"),
    ({"type": "not_contains", "phrases": ["x"] * 33}, "phrases"),
    ({"type": "starts_with", "phrase": ""}, "phrase"),
    ({"type": "ends_with", "phrase": "x" * 101}, "phrase"),
    ({"type": "ends_with", "phrase": "x", "case_sensitive": "no"}, "case_sensitive"),
    ({"type": "characters", "min_characters": 0}, "min_characters"),
    ({"type": "characters", "max_characters": 20_001}, "max_characters"),
    ({"type": "characters", "min_characters": 9, "max_characters": 8}, "min_characters"),
    ({"type": "sentences", "min_sentences": 2.0}, "min_sentences"),
    ({"type": "sentences", "min_sentences": 3, "max_sentences": 2}, "min_sentences"),
    ({"type": "one_of", "labels": []}, "labels"),
    ({"type": "one_of", "labels": ["a", "A"]}, "labels[1]"),
]


@pytest.mark.parametrize(("spec", "param"), FAULTS, ids=str)
def test_faults_are_named(spec, param):
    with pytest.raises(ConstraintError) as caught:
        parse(spec)
    assert caught.value.param == param


def test_phrases_that_differ_in_case_are_two_where_it_counts():
    assert len(of("contains", phrases=["US", "us"], case_sensitive=True).phrases) == 2


C, N = "contains", "not_contains"
CONTRADICTIONS = [
    ({"type": C, "phrases": ["dogs"]}, {"type": N, "phrases": ["Dog"]}),
    ({"type": C, "phrases": ["a, b"]}, {"type": "no_comma"}),
    ({"type": C, "phrases": ["a dog b"]}, {"type": N, "phrases": ["dog"], "inside_words": False}),
    ({"type": C, "phrases": ["dog"], "inside_words": False}, {"type": N, "phrases": ["dog"], "inside_words": False}),
    ({"type": C, "phrases": ["Dog"], "case_sensitive": True}, {"type": N, "phrases": ["D"], "case_sensitive": True}),
    ({"type": "keywords", "keywords": ["dog"]}, {"type": N, "phrases": ["dog"], "inside_words": False}),
    (
        {"type": "keyword_frequency", "keyword": "dog", "relation": "at_least", "count": 1},
        {"type": N, "phrases": ["o"]},
    ),
    (
        {"type": C, "phrases": ["apple"]},
        {"type": "letter_frequency", "letter": "p", "relation": "less_than", "count": 2},
    ),
    (
        {"type": C, "phrases": ["dog"]},
        {"type": "keyword_frequency", "keyword": "do", "relation": "less_than", "count": 1},
    ),
    ({"type": "starts_with", "phrase": "Dear"}, {"type": N, "phrases": ["dear"]}),
    ({"type": "starts_with", "phrase": "Dear"}, {"type": "starts_with", "phrase": "Hello"}),
    ({"type": "ends_with", "phrase": "yes."}, {"type": "ends_with", "phrase": "no."}),
    (
        {"type": "starts_with", "phrase": "A", "case_sensitive": True},
        {"type": "starts_with", "phrase": "a", "case_sensitive": True},
    ),
    ({"type": "characters", "max_characters": 5}, {"type": "word_count", "min_words": 4}),
    ({"type": "characters", "max_characters": 5}, {"type": "characters", "min_characters": 6}),
    ({"type": "characters", "max_characters": 5}, {"type": "keywords", "keywords": ["elephant"]}),
    (
        {"type": "characters", "max_characters": 12},
        {"type": "json", "json_schema": {"type": "object", "required": ["elephants"]}},
    ),
    ({"type": "sentences", "min_sentences": 3}, {"type": "sentences", "max_sentences": 2}),
    ({"type": "sentences", "min_sentences": 5}, {"type": "word_count", "min_words": 1, "max_words": 4}),
    ({"type": "one_of", "labels": ["yes", "no"]}, {"type": "keywords", "keywords": ["maybe"]}),
    ({"type": "one_of", "labels": ["yes", "no"]}, {"type": "one_of", "labels": ["on", "off"]}),
    ({"type": "one_of", "labels": ["yes", "no"]}, {"type": "regex", "pattern": "[0-9]"}),
    ({"type": "one_of", "labels": ["yes", "no"]}, {"type": "json", "json_schema": None}),
    ({"type": "one_of", "labels": ["yes", "no"]}, {"type": "word_count", "min_words": 2}),
]


@pytest.mark.parametrize(("first", "second"), CONTRADICTIONS, ids=str)
@pytest.mark.parametrize("swap", [False, True])
def test_contradictions_are_refused(first, second, swap):
    members = [second, first] if swap else [first, second]
    with pytest.raises(ConstraintError) as caught:
        parse({"type": "all_of", "constraints": members})
    assert caught.value.param.startswith("constraints[")


def test_labels_that_no_other_constraint_leaves_are_refused():
    parts = [{"type": "regex", "pattern": "e"}, {"type": "regex", "pattern": "n"}]
    for part in parts:
        parse({"type": "all_of", "constraints": [{"type": "one_of", "labels": ["yes", "no"]}, part]})
    with pytest.raises(ConstraintError, match="no label meets all"):
        parse({"type": "all_of", "constraints": [{"type": "one_of", "labels": ["yes", "no"]}, *parts]})


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([{"type": C, "phrases": ["dog"]}, {"type": N, "phrases": ["dog"], "inside_words": False}], "dogs"),
        ([{"type": "keywords", "keywords": ["dog"]}, {"type": N, "phrases": ["dog"], "case_sensitive": True}], "A Dog"),
        ([{"type": "starts_with", "phrase": "Dear"}, {"type": "starts_with", "phrase": "dear Ann"}], "Dear Ann, hi"),
        ([{"type": "starts_with", "phrase": "no"}, {"type": "ends_with", "phrase": "no"}], "no"),
        (
            [
                {"type": "one_of", "labels": ["yes", "no"]},
                {"type": "capital_frequency", "relation": "at_least", "count": 1},
            ],
            "NO",
        ),
        ([{"type": "characters", "max_characters": 7}, {"type": "word_count", "min_words": 4}], "a b c d"),
    ],
)
def test_what_can_hold_together_is_accepted(members, text):
    assert parse({"type": "all_of", "constraints": members}).evaluate(text).satisfied
