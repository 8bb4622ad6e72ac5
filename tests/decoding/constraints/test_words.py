"""The word and phrase helpers, against NLTK and against a plain regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints.phrases import MatcherCache, PhraseMatcher, standing_inside
from decoding.constraints.text import collie_words, least_words_of, normalise, treebank_tokens


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
