"""The word and phrase helpers, against NLTK and against a plain regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints.text.phrases import MatcherCache, PhraseMatcher, standing_inside
from decoding.constraints.text.words import (
    collie_form,
    collie_words,
    least_words_of,
    normalise,
    treebank_tokens,
    written_words,
)


@pytest.mark.parametrize(
    "text",
    [
        "He said \"no.\" Don't go -- ok... I'M here.",
        "C'est 1,000.50$ (50%)",
        "cannot gonna 'tis",
        "\u201cHi,\u201d she\u2019s",
        "",
    ],
)
def test_tokens_are_nltks_without_sentence_split(text):
    nltk = pytest.importorskip("nltk")
    assert treebank_tokens(text) == nltk.word_tokenize(text, preserve_line=True)


def test_collie_words_follow_its_rules():
    text = "\"Well,\" said the dog's large-scale owner -- can't it wait ... 1907-1908?"
    expected = ["``", "Well", "''", "said", "the", "dog", "'s", "large-scale", "owner", "--", "ca", "n't", "it", "wait"]
    assert collie_words(text) == [*expected, "", "1907-1908"]


@settings(deadline=None)
@given(
    st.lists(st.text("ab c", min_size=1, max_size=4).filter(str.strip), min_size=1, max_size=5),
    st.text("abc .", max_size=30),
)
def test_matcher_agrees_with_the_regular_expression(phrases, text):
    plain = normalise(text)
    expected = {normalise(p) for p in phrases if re.search(rf"\b{re.escape(normalise(p))}\b", plain)}
    assert PhraseMatcher(phrases).matches(text) == expected


@settings(deadline=None)
@given(st.text(max_size=40))
def test_normalise_is_idempotent(text):
    assert normalise(normalise(text)) == normalise(text)


def test_blank_phrases_are_refused():
    with pytest.raises(ValueError, match="blank"):
        PhraseMatcher(["dog", " "])


@pytest.mark.parametrize(
    ("demands", "least"),
    [
        ([], 0),
        ([("dog",), ("ball",)], 2),
        ([("dog", "dogs"), ("ball",)], 2),
        ([("dog",), ("hot dog",)], 2),
        ([("hot dog",), ("dog",)], 2),
        ([("don't",), ("well-known",)], 2),
        ([("dog",), ("dog", "cat")], 1),
        ([("new york",), ("york city",)], 3),
        ([("dog",), ("'s",), ("n't",), ("!!",)], 1),
        ([("big dog", "big cat"), ("dog",)], 2),
    ],
    ids=str,
)
def test_least_words(demands, least):
    assert least_words_of(demands) == least


def test_standing_inside():
    assert standing_inside(["ball", "ball game", "football", "Game"]) == {"ball", "game"}


def by_definition(phrase: str, plain: str) -> bool:
    """Whether `phrase` stands whole somewhere in `plain`, place by place."""
    word = re.compile(r"\w")
    for start in range(len(plain) - len(phrase) + 1):
        end = start + len(phrase)
        begins = phrase == "n't" or not word.match(phrase[0]) or start == 0 or not word.match(plain[start - 1])
        ends = not word.match(phrase[-1]) or end == len(plain) or not word.match(plain[end])
        if plain.startswith(phrase, start) and begins and ends:
            return True
    return False


PIECES = st.text("ab+-' n't", min_size=1, max_size=5).filter(str.strip)


@settings(max_examples=400)
@given(st.lists(PIECES, min_size=1, max_size=12), st.text("ab+-' n't", max_size=30))
def test_every_phrase_is_found_by_definition(phrases, text):
    plain = normalise(text)
    expected = {normalise(p) for p in phrases if by_definition(normalise(p), plain)}
    matcher = PhraseMatcher(phrases)
    assert matcher.matches(text) == expected
    assert matcher.occurs_in(text) is bool(expected)


def test_the_cache_of_matchers_is_bounded_in_bytes():
    cache = MatcherCache(limit=100_000)
    for index in range(50):
        cache.matcher(tuple(f"phrase {index} {number}" for number in range(20)), plurals=index % 2 == 0)
        assert cache.bytes <= 100_000
    last = cache.matcher(("a", "b"))
    assert cache.matcher(("a", "b")) is last
    assert cache.matcher(("a", "b"), plurals=True) is not last
    assert cache.matcher(tuple("x" * 1000 + str(number) for number in range(200))).matches("nothing") == set()
    assert cache.bytes <= 100_000


@pytest.mark.parametrize("dash", ["\u2014", "\u2013", "-", "--", "...", "\u2026", "\u201c"])
def test_punctuation_alone_is_no_word(dash):
    assert written_words(f"Cats {dash} run.") == ["Cats", "run."]


def test_marks_that_are_no_punctuation_stay_words():
    assert written_words("1 + 2 \U0001f642 c++ '90s") == ["1", "+", "2", "\U0001f642", "c++", "'90s"]


def test_the_dotted_capital_i_is_an_i():
    assert (
        normalise("\u0130STANBUL")
        == normalise("istanbul")
        == normalise("I\u0307stanbul")
        == normalise("i\u0307stanbul")
    )
    assert PhraseMatcher(["istanbul"]).matches("\u0130stanbul!") == {"istanbul"}
    assert collie_form("\u0130stanbul") == "istanbul"
