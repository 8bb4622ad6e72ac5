"""Case markers: what they render, that they count, and that text with capitals comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints.paper.ifeval import CapitalFrequency
from decoding.models.bert_mini.codec import MiniCodec, readable
from decoding.models.bert_mini.vocabulary import CAP, UPPER, token_id
from tests.decoding.mini.samples import tokenizer

SPELLED = tokenizer()
CODEC = MiniCodec(SPELLED)
WORDS = ("dog", "ball", "runs", "the", "tom", "don't", "well-known", "i", "a", "quickly")


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("a [UPPER] dog runs .", "A DOG runs."),
        ("[UPPER] a dog runs .", "A dog runs."),
        ("he met [CAP] tom .", "He met Tom."),
        ("[UPPER] don ' t run .", "DON'T run."),
        ("a [UPPER] well - known man", "A WELL-KNOWN man"),
        ("a dog [UPPER] .", "A dog."),
        ("a dog [UPPER]", "A dog"),
        ("[CAP] [UPPER] dog", "DOG"),
        ("[UPPER] [CAP] dog", "Dog"),
        ("a well - [UPPER] known man", "A well-KNOWN man"),
    ],
)
def test_markers_render(tokens: str, text: str) -> None:
    assert readable(tokens) == text


@pytest.mark.parametrize(
    "text",
    [
        "A DOG runs to the BALL.",
        "He met Tom in Boston. Tom ran.",
        "I know that I can. So do you!",
        "DON'T stop.",
        "It is a WELL-KNOWN dog, Tom said.",
        "A dog is A dog.",
        "Stop! NOW.",
        '"Come," said Lily. "RUN!"',
    ],
)
def test_text_with_capitals_comes_back(text: str) -> None:
    assert CODEC.decode(CODEC.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(["", "cap", "upper"])), min_size=1, max_size=10))
def test_any_casing_of_whole_words_comes_back(words: list[tuple[str, str]]) -> None:
    cased = [w.upper() if how == "upper" else w.capitalize() if how == "cap" else w for w, how in words]
    text = CODEC.decode(CODEC.encode(" ".join(cased) + "."))
    assert CODEC.decode(CODEC.encode(text)) == text
    shouted = [c for c, (w, how) in zip(cased, words, strict=True) if how == "upper" and len(w) > 1]
    assert CapitalFrequency("at_least", max(1, len(shouted))).evaluate(text).satisfied or not shouted


def test_markers_count_as_capital_words() -> None:
    plain = CODEC.encode("the dog runs.")
    marked = [plain[0], token_id(SPELLED, UPPER), *plain[1:]]
    assert not CapitalFrequency("at_least", 1).evaluate(CODEC.decode(plain)).satisfied
    assert CapitalFrequency("at_least", 1).evaluate(CODEC.decode(marked)).satisfied
    capped = [plain[0], token_id(SPELLED, CAP), *plain[1:]]
    assert not CapitalFrequency("at_least", 1).evaluate(CODEC.decode(capped)).satisfied


def test_lower_case_needs_no_marker() -> None:
    markers = {token_id(SPELLED, CAP), token_id(SPELLED, UPPER)}
    assert not markers & set(CODEC.encode("The dog runs. It is here, and I am too. I'm glad."))
    assert not markers & set(CODEC.encode_prompt("Use the word TOM. Write it in CAPITALS."))


def test_a_typed_marker_is_text() -> None:
    typed = CODEC.encode("[CAP] dog")
    assert token_id(SPELLED, CAP) not in typed
    assert CODEC.decode(typed).replace(" ", "") == "[CAP]dog"
