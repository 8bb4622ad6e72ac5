"""What is refused, where the error points, and which sets of constraints exclude each other."""

from __future__ import annotations

import copy
import pickle

import pytest

from decoding.constraints import REGISTRY, ConstraintError, parse
from decoding.constraints.compose.all_of import AllOf
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.sentiment import Sentiment

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball"]}
FREQUENCY = {"type": "keyword_frequency", "keyword": "dog", "relation": "at_least", "count": 2}
LETTER = {"type": "letter_frequency", "letter": "e", "relation": "less_than", "count": 1}
CAPITAL = {"type": "capital_frequency", "relation": "at_least", "count": 2}
RATIO = {"type": "length_ratio", "source": "one two three four five", "low": 0.4, "high": 0.8}
COUNT = {"type": "word_count", "min_words": 2, "max_words": 4}
SENTIMENT = {"type": "sentiment", "target": "positive", "threshold": 0.5}
C07 = {"type": "collie_c07", "words": ["have", "the"]}
C06A = {"type": "collie_c06a", "min_words": 4, "max_chars": 5}
AVOID = {"type": "avoid", "topic": "animals", "forbidden": ["dog"], "topical": ["cat", "dog"]}
NO_COMMA = {"type": "no_comma"}
NAN = float("nan")
INF = float("inf")
HUGE = 10**400

BAD_COUNTS = [0, -1, 10_001, HUGE, 1.0, True, "2", None, NAN]
BAD_PHRASES = ["", "  ", "\u200b", "\x00", "a\x07", "\ud800", "x" * 101, 3, None, ["a"], True]


def cases():
    for bad in BAD_COUNTS:
        yield {**FREQUENCY, "count": bad}, "count"
        yield {**LETTER, "count": bad}, "count"
        yield {**CAPITAL, "count": bad}, "count"
        yield {**C06A, "min_words": bad}, "min_words"
        yield {**C06A, "max_chars": bad}, "max_chars"
        if bad is not None:
            yield {**COUNT, "min_words": 0, "max_words": bad}, "max_words"
        if bad != 0 or bad is None:
            yield {**COUNT, "min_words": bad}, "min_words"
    for bad in BAD_PHRASES:
        yield {**KEYWORDS, "keywords": ["a", bad]}, "keywords[1]"
        yield {**KEYWORDS, "forms": {"dog": ["dogs", bad]}}, "forms.dog[1]"
        yield {**FREQUENCY, "keyword": bad}, "keyword"
        yield {**LETTER, "letter": bad}, "letter"
        yield {**C07, "words": [bad]}, "words[0]"
        yield {**AVOID, "topic": bad}, "topic"
        yield {**AVOID, "forbidden": [bad]}, "forbidden[0]"
        yield {**AVOID, "topical": [bad]}, "topical[0]"
    for bad in [[], "dog", {"dog": 1}, 3, None, True, b"dog"]:
        yield {**KEYWORDS, "keywords": bad}, "keywords"
        yield {**C07, "words": bad}, "words"
        yield {**AVOID, "forbidden": bad}, "forbidden"
        yield {"type": "all_of", "constraints": bad}, "constraints"
        if bad is not None:
            yield {**AVOID, "topical": bad}, "topical"
    for bad in [NAN, INF, -INF, -0.1, 101, HUGE, True, "0.5", None, [0.5]]:
        yield {**RATIO, "low": bad}, "low"
        yield {**RATIO, "high": bad}, "high"
        yield {**SENTIMENT, "threshold": bad}, "threshold"
    for bad in ["", "at least", "AT_LEAST", 3, None, ["at_least"], {}]:
        yield {**FREQUENCY, "relation": bad}, "relation"
        yield {**LETTER, "relation": bad}, "relation"
        yield {**CAPITAL, "relation": bad}, "relation"
        yield {**SENTIMENT, "target": bad}, "target"
    for bad in ["", " \n", "x" * 20_001, "\x00", 5, None, ["a"]]:
        yield {**RATIO, "source": bad}, "source"
    for bad in [["dogs"], "dogs", 3, True]:
        yield {**KEYWORDS, "forms": bad}, "forms"
    yield {**KEYWORDS, "keywords": [f"w{i}" for i in range(33)]}, "keywords"
    yield {**KEYWORDS, "keywords": ["Dog", "ball", "dOG "]}, "keywords[2]"
    yield {**KEYWORDS, "keywords": ["don't", "DON\u2019T"]}, "keywords[1]"
    yield {**KEYWORDS, "keywords": ["caf\u00e9", "cafe\u0301"]}, "keywords[1]"
    yield {**KEYWORDS, "forms": {"cat": ["cats"]}}, "forms"
    yield {**KEYWORDS, "forms": {"dog": []}}, "forms.dog"
    yield {**KEYWORDS, "forms": {"dog": ["dogs", "Dogs"]}}, "forms.dog[1]"
    yield {**LETTER, "letter": "ab"}, "letter"
    yield {**RATIO, "low": 0.9}, "low"
    yield {**RATIO, "low": 0.41, "high": 0.59}, "high"
    yield {**RATIO, "low": 0, "high": 0}, "high"
    yield {**RATIO, "low": 0, "high": 0.1}, "high"
    yield {**SENTIMENT, "threshold": 0}, "threshold"
    yield {**COUNT, "min_words": 5}, "min_words"
    yield {**C07, "words": ["can't"]}, "words[0]"
    yield {**C07, "words": ["the", "two words"]}, "words[1]"
    yield {**C07, "words": ["."]}, "words[0]"
    yield {**AVOID, "topical": ["dog", "Hot dog", "dogs"]}, "topical"
    yield {**AVOID, "forbidden": ["dog", "DOG"]}, "forbidden[1]"
    for bad in [None, 3, "keywords", ["keywords"]]:
        yield bad, ""
        yield {"type": "all_of", "constraints": [KEYWORDS, bad]}, "constraints[1]"
    for bad in [None, 3, "nope", ["keywords"], {}, ""]:
        yield {"type": bad}, "type"
        yield {"type": "all_of", "constraints": [{"type": bad}]}, "constraints[0].type"
    yield {}, "type"
    yield {"type": "all_of", "constraints": [NO_COMMA] * 17}, "constraints"
    yield {"type": "all_of", "constraints": [NO_COMMA, {"type": "all_of", "constraints": [KEYWORDS]}]}, "constraints[1]"
    yield {"type": "all_of", "constraints": [{**KEYWORDS, "keywords": ["a", ""]}]}, "constraints[0].keywords[1]"
    yield {"type": "sentiment", "target": "positive", "scorer": None}, "scorer"


@pytest.mark.parametrize(("spec", "param"), list(cases()), ids=lambda value: ascii(value)[:60])
def test_faults_are_named(spec, param):
    with pytest.raises(ConstraintError) as caught:
        parse(spec)
    assert caught.value.param == param
    assert len(caught.value.reason) > 5
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", REGISTRY)
def test_unknown_and_missing_fields_are_named(kind):
    spec = REGISTRY[kind].example().to_spec()
    with pytest.raises(ConstraintError, match="no field of") as caught:
        parse({**spec, "kewords": 1})
    assert caught.value.param == "kewords"
    for name in REGISTRY[kind].schema()["required"]:
        with pytest.raises(ConstraintError) as caught:
            parse({key: value for key, value in spec.items() if key != name})
        assert caught.value.param == name


CONTRADICTIONS = [
    (COUNT, {"type": "word_count", "min_words": 5, "max_words": None}),
    (COUNT, {**RATIO, "low": 1.0, "high": 2.0}),
    ({**COUNT, "min_words": 0, "max_words": 1}, RATIO),
    ({**COUNT, "max_words": 2}, {**KEYWORDS, "keywords": ["a", "b", "c"]}),
    ({**COUNT, "max_words": 2}, {**KEYWORDS, "keywords": ["one two three"]}),
    ({**COUNT, "max_words": 4}, {**C06A, "min_words": 10}),
    ({**COUNT, "max_words": 4}, {**CAPITAL, "count": 10}),
    (NO_COMMA, {**KEYWORDS, "keywords": ["dog", "yes, sir"]}),
    (NO_COMMA, {**KEYWORDS, "keywords": ["a,b"], "forms": {"a,b": ["c,d"]}}),
    (NO_COMMA, {**FREQUENCY, "keyword": "a, b"}),
    (NO_COMMA, {**LETTER, "letter": ",", "relation": "at_least"}),
    (NO_COMMA, {**C07, "words": ["1,000"]}),
    (AVOID, KEYWORDS),
    (AVOID, {**KEYWORDS, "keywords": ["Dogs"]}),
    (AVOID, {**KEYWORDS, "keywords": ["hot dog"]}),
    (AVOID, {**C07, "words": ["dog"]}),
    (AVOID, {**AVOID, "forbidden": ["cat"], "topical": ["dog", "cat", "dogs"], "topic": "pets"}),
    (SENTIMENT, {**SENTIMENT, "target": "negative"}),
    (FREQUENCY, {**FREQUENCY, "relation": "less_than"}),
    (FREQUENCY, {**FREQUENCY, "keyword": "DOG", "relation": "less_than", "count": 1}),
    ({**FREQUENCY, "keyword": "dogs"}, {**FREQUENCY, "relation": "less_than", "count": 2}),
    ({**FREQUENCY, "keyword": "\u00e9t\u00e9"}, {**FREQUENCY, "keyword": "\u00c9t\u00e9", "relation": "less_than"}),
    ({**FREQUENCY, "keyword": "see"}, {**LETTER, "count": 4}),
    (LETTER, {**LETTER, "letter": "E", "relation": "at_least"}),
    (LETTER, {**KEYWORDS, "keywords": ["beach"]}),
    (LETTER, C07),
    ({**LETTER, "count": 2}, {**KEYWORDS, "keywords": ["red", "bed"]}),
    (KEYWORDS, {**FREQUENCY, "keyword": "do", "relation": "less_than", "count": 1}),
    (CAPITAL, {**CAPITAL, "relation": "less_than"}),
    (C06A, {**KEYWORDS, "keywords": ["dog", "elephant"]}),
    (C06A, {**C07, "words": ["elephant"]}),
    (C06A, {**FREQUENCY, "keyword": "elephant"}),
    (KEYWORDS, {**KEYWORDS, "keywords": ["sun", "DOG"]}),
    *(
        (spec, spec)
        for spec in (KEYWORDS, COUNT, RATIO, SENTIMENT, FREQUENCY, LETTER, CAPITAL, NO_COMMA, C07, C06A, AVOID)
    ),
]


@pytest.mark.parametrize(("first", "second"), CONTRADICTIONS, ids=lambda spec: ascii(list(spec.values()))[:50])
@pytest.mark.parametrize("swap", [False, True])
def test_members_that_exclude_each_other_are_refused(first, second, swap):
    members = [second, first] if swap else [first, second]
    with pytest.raises(ConstraintError) as caught:
        parse({"type": "all_of", "constraints": members})
    assert caught.value.param.startswith("constraints[")


def test_keywords_spread_over_members_are_counted_together():
    members = [{**KEYWORDS, "keywords": [word]} for word in "abcde"]
    with pytest.raises(ConstraintError, match=r"constraints\[0\].*at most 4 words.*need 5"):
        parse({"type": "all_of", "constraints": [COUNT, *members]})


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([COUNT, {**RATIO, "low": 0.8, "high": 2.0}], "one two three four"),
        ([NO_COMMA, {**KEYWORDS, "keywords": ["a,b"], "forms": {"a,b": ["ab"]}}], "ab"),
        ([AVOID, {**KEYWORDS, "keywords": ["dog", "cat"], "forms": {"dog": ["hound"]}}], "hound and cat"),
        ([AVOID, {**FREQUENCY, "count": 1}], "A dogmatic cat."),
        ([{**LETTER, "count": 2}, {**KEYWORDS, "keywords": ["red", "red sun"]}], "red sun"),
        (
            [{**SENTIMENT, "threshold": 0.1}, {**SENTIMENT, "target": "negative", "threshold": 0.1}],
            "It is a sort of thing.",
        ),
        ([{**C06A, "max_chars": 3, "min_words": 2}, {**KEYWORDS, "keywords": ["can't"]}], "can't go"),
        ([{**FREQUENCY, "count": 2}, {**FREQUENCY, "relation": "less_than", "count": 4}], "dog dog"),
        ([{**COUNT, "max_words": 3}, {**KEYWORDS, "keywords": ["new york", "york city"]}], "new york city"),
        ([{**COUNT, "max_words": 2}, {**KEYWORDS, "keywords": ["don't", "dog", "'s"]}], "Don't dog's"),
        ([{**COUNT, "max_words": 2}, {**KEYWORDS, "keywords": ["dog", "dog-friendly", "n't"]}], "don't dog-friendly"),
        ([{**COUNT, "max_words": 2, "min_words": 1}, {**C06A, "min_words": 4}], "can't can't"),
    ],
    ids=str,
)
def test_members_that_can_hold_together_are_accepted(members, text):
    outcome = parse({"type": "all_of", "constraints": members}).evaluate(text)
    assert outcome.satisfied, outcome


def test_constructors_validate_too():
    with pytest.raises(ConstraintError, match=r"constraints\[0\]"):
        AllOf(("dog",))
    with pytest.raises(ConstraintError, match="all_of"):
        AllOf((AllOf((Keywords(("dog",)),)),))
    with pytest.raises(ConstraintError, match="probability_positive"):
        Sentiment("positive", 0.5, scorer=object())
    assert Keywords(["dog"], {"dog": ["dogs"]}) == Keywords(("dog",), (("dog", ("dogs",)),))
    assert hash(Keywords(["dog"])) == hash(Keywords(("dog",)))


def test_errors_travel():
    error = ConstraintError("keywords[1]", "is empty")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (copied.param, copied.reason, str(copied)) == (error.param, error.reason, str(error))
    assert error.under("constraint").param == "constraint.keywords[1]"
    assert ConstraintError("", "is wrong").under("constraint").param == "constraint"


def test_integers_too_long_to_print_are_refused_cleanly():
    for spec in ({**FREQUENCY, "count": 10**5000}, {**RATIO, "low": 10**5000}, {**SENTIMENT, "threshold": -(10**5000)}):
        with pytest.raises(ConstraintError, match="too large"):
            parse(spec)
