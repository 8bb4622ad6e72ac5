"""Each predicate by hand-made cases: what counts, what does not, and how far from it a text is."""

from __future__ import annotations

import time

import numpy as np
import pytest

from decoding.constraints import REGISTRY, Scorers, parse
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.sentiment import shipped_sentiment, shipped_sentiment_card

BLANKS = ["", " ", "\n\t ", "\u2003\u00a0"]


def satisfied(text, **spec):
    return parse(spec).evaluate(text).satisfied


def score(text, **spec):
    return parse(spec).evaluate(text).score


@pytest.mark.parametrize("kind", REGISTRY)
@pytest.mark.parametrize("text", BLANKS, ids=ascii)
def test_blank_text_satisfies_nothing(kind, text):
    outcome = REGISTRY[kind].example().evaluate(text)
    assert (outcome.satisfied, outcome.score) == (False, 0.0)
    assert outcome.checks
    assert all(not check.satisfied and check.score == 0 and "empty" in check.detail for check in outcome.checks)


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "keyword_frequency", "keyword": "x", "relation": "less_than", "count": 5},
        {"type": "letter_frequency", "letter": "x", "relation": "less_than", "count": 5},
        {"type": "capital_frequency", "relation": "less_than", "count": 5},
        {"type": "no_comma"},
        {"type": "avoid", "topic": "animals", "forbidden": ["dog"]},
        {"type": "word_count", "min_words": 0, "max_words": 3},
        {"type": "length_ratio", "source": "one two", "low": 0, "high": 1},
    ],
    ids=lambda spec: spec["type"],
)
def test_upper_bounds_are_not_met_by_silence(spec):
    assert not parse(spec).evaluate(" ").satisfied
    assert parse(spec).evaluate("Fine.").satisfied


@pytest.mark.parametrize("text", [None, 3, b"dog"])
def test_text_must_be_a_string(text):
    with pytest.raises(TypeError, match="must be a str"):
        Keywords(("dog",)).evaluate(text)


@pytest.mark.parametrize(
    ("keyword", "text", "expected"),
    [
        ("dog", "The DOG's ball", True),
        ("dog", "The dogs", False),
        ("dog", "a hotdog", False),
        ("dog", "dog", True),
        ("dog", "a dog-friendly place (dog)", True),
        ("dog", "my_dog", False),
        ("hot dog", "a hot\n  dog!", True),
        ("hot dog", "a hot, dog", False),
        ("c++", "I like C++.", True),
        ("c++", "objc++ code", False),
        ("c", "I like C++.", True),
        (".net", "asp.net core", True),
        (".net", "the .network", False),
        ("n't", "I don\u2019t know", True),
        ("n't", "nt", False),
        ("'s", "the dog\u2019s bone", True),
        ("don't", "I DON\u2019T", True),
        ("don't", "I dont", False),
        ("caf\u00e9", "a CAFE\u0301 here", True),
        ("cafe", "a cafe\u0301 here", False),
        ("stra\u00dfe", "Die STRASSE", True),
        ("\u0438\u0433\u0440\u0430", "\u042d\u0442\u043e \u0418\u0413\u0420\u0410.", True),
        ("\u0938", "\u0938\u093f", False),
        ("100", "costs 100%", True),
        ("100", "1000", False),
        ("!!", "stop!!", True),
        ("a.b", "axb", False),
        ("(.*)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", False),
        ("\U0001f642", "hello\U0001f642you", True),
    ],
)
def test_keyword_matching(keyword, text, expected):
    assert satisfied(text, type="keywords", keywords=[keyword]) is expected


def test_keywords_are_graded_and_name_what_is_missing():
    outcome = Keywords(("dog", "ball", "beach", "sun")).evaluate("A dog with a ball in the sun.")
    assert (outcome.satisfied, outcome.score) == (False, 0.75)
    assert [check.name for check in outcome.checks if not check.satisfied] == ["keyword: beach"]


def test_overlapping_keywords_may_share_an_occurrence():
    constraint = Keywords(("ball", "ball game", "game"))
    assert constraint.evaluate("A ball game.").satisfied
    assert constraint.required_text() == ("ball game",)
    assert constraint.minimum_words() == 2
    assert Keywords(("new york", "york city")).minimum_words() == 3


def test_forms_are_alternatives_of_their_keyword_alone():
    constraint = Keywords(("run", "dog"), (("run", ("ran", "running")),))
    assert constraint.evaluate("The dog ran.").satisfied
    assert not constraint.evaluate("The dogs ran.").satisfied
    assert constraint.required_text() == ("dog",)
    assert constraint.minimum_words() == 2


@pytest.mark.parametrize(("words", "expected"), [(3, False), (4, True), (8, True), (9, False)])
def test_length_band_includes_its_bounds(words, expected):
    source = " ".join(["word"] * 10)
    assert satisfied("w " * words, type="length_ratio", source=source, low=0.4, high=0.8) is expected


def test_length_scores_fall_with_the_distance():
    spec = {"type": "word_count", "min_words": 4, "max_words": 5}
    scores = [score("w " * n, **spec) for n in range(1, 12)]
    assert scores[:3] == [0.25, 0.5, 0.75]
    assert scores[3:5] == [1.0, 1.0]
    assert scores[5:] == sorted(scores[5:], reverse=True)
    assert scores[5] < 1


@pytest.mark.parametrize(
    ("text", "capital_words"),
    [
        ("I AM here in the U.S. with COVID-19", 4),
        ("DON'T", 2),
        ("I'M", 2),
        ("STATE-OF-THE-ART well-KNOWN", 1),
        ("123 4-5", 0),
        ("\u00c9T\u00c9 \u00e9t\u00e9", 1),
    ],
)
def test_capital_words(text, capital_words):
    assert satisfied(text, type="capital_frequency", relation="at_least", count=max(capital_words, 1)) is (
        capital_words > 0
    )
    assert satisfied(text, type="capital_frequency", relation="less_than", count=capital_words + 1)
    assert not satisfied(text, type="capital_frequency", relation="at_least", count=capital_words + 1)


def test_keyword_frequency_counts_inside_words_and_is_literal():
    spec = {"type": "keyword_frequency", "keyword": "war", "relation": "at_least", "count": 3}
    assert satisfied("Reward in Warsaw: WAR", **spec)
    assert score("war", **spec) == pytest.approx(1 / 3)
    assert not satisfied("aaa", type="keyword_frequency", keyword="aa", relation="at_least", count=2)
    assert not satisfied("abc", type="keyword_frequency", keyword="a.c", relation="at_least", count=1)


def test_letter_frequency_ignores_case_and_takes_marks():
    assert satisfied("Oo o", type="letter_frequency", letter="O", relation="at_least", count=3)
    assert satisfied("## ##", type="letter_frequency", letter="#", relation="at_least", count=4)
    assert score("eee", type="letter_frequency", letter="e", relation="less_than", count=1) == pytest.approx(0.25)


@pytest.mark.parametrize(("text", "expected"), [("a\uff0c b\u060c c\u3001", True), ("1,000", False), ("a, b", False)])
def test_only_the_ascii_comma_is_a_comma(text, expected):
    assert satisfied(text, type="no_comma") is expected


def test_collie_words_are_whole_tokens():
    assert satisfied("He can't.", type="collie_c07", words=["ca", "n't"])
    assert not satisfied("Then rising.", type="collie_c07", words=["the"])
    assert satisfied("A cat of a", type="collie_c07", words=["a", "a", "of"])
    assert satisfied('"No," he said.', type="collie_c07", words=["NO", "said"])


def test_collie_c06a_counts_tokens_and_their_characters():
    spec = {"type": "collie_c06a", "min_words": 4, "max_chars": 3}
    assert satisfied("We can't go.", **spec)
    assert satisfied("a b -- c", **spec)
    assert not satisfied("We run far, a-way.", **spec)
    assert score("one two", **spec) == pytest.approx(0.75)


def test_avoidance_matches_words_and_plurals_but_not_parts():
    spec = {"type": "avoid", "topic": "animals", "forbidden": ["cat", "big cat"], "topical": ["horse", "cat"]}
    assert satisfied("Horses like education.", **spec)
    assert not satisfied("The CATS sleep.", **spec)
    assert not satisfied("The sky is blue.", **spec)
    assert score("The sky is blue.", **spec) == 0.5
    both = score("A horse met a cat.", **spec)
    assert score("A horse met a big cat.", **spec) < both < 1
    assert satisfied("The sky is blue.", type="avoid", topic="animals", forbidden=["cat"])


class Fixed:
    """A scorer that finds every text positive with probability `value`."""

    def __init__(self, value):
        self.value = value

    def probability_positive(self, texts):
        return np.full(len(texts), self.value)


@pytest.mark.parametrize(("value", "threshold", "expected"), [(0.8, 0.8, True), (0.79, 0.8, False), (1.0, 1.0, True)])
def test_sentiment_compares_with_the_threshold(value, threshold, expected):
    scorers = Scorers(sentiment=Fixed(value))
    spec = {"type": "sentiment", "target": "positive", "threshold": threshold}
    assert parse(spec, scorers=scorers).evaluate("text").satisfied is expected
    mirrored = Scorers(sentiment=Fixed(1 - value))
    member = {"type": "all_of", "constraints": [{**spec, "target": "negative"}]}
    assert parse(member, scorers=mirrored).evaluate("text").satisfied is (1 - (1 - value) >= threshold)


@pytest.mark.parametrize("value", [float("nan"), 1.5, -0.1])
def test_a_scorer_that_returns_no_probability_is_an_error(value):
    spec = {"type": "sentiment", "target": "positive"}
    with pytest.raises(ValueError, match="no probability"):
        parse(spec, scorers=Scorers(sentiment=Fixed(value))).evaluate("text")


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("I love this wonderful day.", True),
        ("A happy child smiles at her beautiful cake.", True),
        ("The meal was delicious and the service was great!", True),
        ("I hate this terrible weather.", False),
        ("It was a boring and stupid waste of time.", False),
        ("The movie was not good.", False),
        ("I don\u2019t like it.", False),
        ("I do n't like it .", False),
    ],
)
def test_shipped_sentiment_on_plain_sentences(text, positive):
    assert satisfied(text, type="sentiment", target="positive" if positive else "negative")


def test_shipped_sentiment_is_deterministic_whatever_the_batch():
    scorer = shipped_sentiment()
    texts = ["A good day.", "", "...", "A bad day.", "\ud800 broken", "good " * 2000]
    together = scorer.probability_positive(texts)
    assert together.shape == (6,)
    assert ((together >= 0) & (together <= 1)).all()
    assert [float(scorer.probability_positive([text])[0]) for text in texts] == together.tolist()
    assert scorer.probability_positive([]).shape == (0,)


def test_shipped_sentiment_reports_its_accuracy():
    card = shipped_sentiment_card()
    assert card["dev"]["accuracy"] >= 0.83
    assert card["test"]["accuracy"] >= 0.83
    assert set(card["licences"]) == {"SST-2", "VADER lexicon"}


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("kind", REGISTRY)
@pytest.mark.parametrize(
    "text",
    [
        "The DOG ran, and don't stop. " * 7000,
        "a" * 200_000,
        "dog " * 50_000,
        "'\"" * 100_000,
        "," * 200_000,
        "\u00e9 " * 99_999,
    ],
    ids=["prose", "one word", "keyword", "quotes", "commas", "accents"],
)
def test_huge_texts_take_less_than_a_second(kind, text):
    constraint = REGISTRY[kind].example()
    constraint.evaluate("warm")
    start = time.process_time()
    constraint.evaluate(text)
    assert time.process_time() - start < 1.0
