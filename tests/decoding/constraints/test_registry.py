"""The registry: catalogue, JSON schemas, families, instructions, and properties that hold for every constraint."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints import FAMILIES, REGISTRY, Check, Constraint, Verdict, catalogue, parse
from decoding.constraints.paper.keywords import Keywords
from tests.decoding.constraints import reference

WORDS = ["dog", "ball", "beach", "red", "Sun", "new york", "don't", "c++", "I", "tree", "run", "sea"]
DESIGN_FIELDS = {
    "keywords": {"keywords", "forms"},
    "length_ratio": {"source", "low", "high"},
    "word_count": {"min_words", "max_words"},
    "sentiment": {"target", "threshold"},
    "keyword_frequency": {"keyword", "relation", "count"},
    "letter_frequency": {"letter", "relation", "count"},
    "capital_frequency": {"relation", "count"},
    "no_comma": set(),
    "collie_c07": {"words"},
    "collie_c06a": {"min_words", "max_chars"},
    "avoid": {"topic", "forbidden", "topical"},
    "all_of": {"constraints"},
    "any_of": {"constraints"},
    "none_of": {"constraints"},
    "regex": {"pattern", "mode", "meaning"},
    "contains": {"phrases", "case_sensitive", "inside_words"},
    "not_contains": {"phrases", "case_sensitive", "inside_words"},
    "starts_with": {"phrase", "case_sensitive"},
    "ends_with": {"phrase", "case_sensitive"},
    "json": {"json_schema"},
    "characters": {"min_characters", "max_characters"},
    "sentences": {"min_sentences", "max_sentences"},
    "one_of": {"labels"},
    "python": {"name"},
}


def of(kind, **fields):
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


RELATIONS = st.sampled_from(["at_least", "less_than"])
COUNTS = st.integers(1, 6)
PHRASES = st.lists(st.sampled_from([*WORDS, "do", "bal", "New"]), min_size=1, max_size=4, unique_by=str.casefold)
FLAGS = {"case_sensitive": st.booleans(), "inside_words": st.booleans()}


def ranged(kind, unit):
    """A range of `unit`, with or without an upper bound."""
    low, extra = st.integers(1, 8), st.one_of(st.none(), st.integers(0, 20))
    return st.tuples(low, extra).map(
        lambda pair: {
            "type": kind,
            f"min_{unit}": pair[0],
            f"max_{unit}": None if pair[1] is None else pair[0] + pair[1],
        }
    )


SPECS = st.one_of(
    of("keywords", keywords=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True)),
    st.tuples(st.integers(0, 5), st.integers(1, 12)).map(
        lambda pair: {"type": "word_count", "min_words": min(pair), "max_words": max(*pair, 1)}
    ),
    of("length_ratio", source=st.just("a b c d e f g h"), low=st.floats(0, 0.5), high=st.floats(0.7, 2)),
    of("sentiment", target=st.sampled_from(["positive", "negative"]), threshold=st.floats(0.05, 1)),
    of("keyword_frequency", keyword=st.sampled_from(WORDS), relation=RELATIONS, count=COUNTS),
    of("letter_frequency", letter=st.sampled_from("aeo#\u00e9"), relation=RELATIONS, count=COUNTS),
    of("capital_frequency", relation=RELATIONS, count=COUNTS),
    of("no_comma"),
    of("collie_c07", words=st.lists(st.sampled_from(["dog", "the", "n't", "Sun"]), min_size=1, max_size=3)),
    of("collie_c06a", min_words=COUNTS, max_chars=COUNTS),
    of("avoid", topic=st.just("nature"), forbidden=st.just(["dog"]), topical=st.just(["sea", "tree"])),
    of("contains", phrases=PHRASES, **FLAGS),
    of("not_contains", phrases=PHRASES, **FLAGS),
    of("starts_with", phrase=st.sampled_from(WORDS), case_sensitive=st.booleans()),
    of("ends_with", phrase=st.sampled_from(WORDS), case_sensitive=st.booleans()),
    of(
        "regex",
        pattern=st.sampled_from(["dog", "^[a-z ]+$", r"\bs\w+", "(a+)+$"]),
        mode=st.sampled_from(["search", "full"]),
    ),
    of("json", json_schema=st.sampled_from([None, {"type": "string"}, {"type": "object", "required": ["dog"]}])),
    ranged("characters", "characters"),
    ranged("sentences", "sentences"),
    of("one_of", labels=PHRASES),
    of("python", name=st.just("no_repeats")),
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(['"dog"', '{"dog": 1}', "{", "12", "dog", "Sun.", "NEW YORK"]),
    st.lists(st.sampled_from([*WORDS, ",", ".", "DOG", "CAN'T", "good", "bad", "--"]), max_size=14).map(" ".join),
)


def test_catalogue_is_complete_and_plain_json():
    entries = catalogue()
    assert [entry["type"] for entry in entries] == list(DESIGN_FIELDS) == list(REGISTRY)
    assert json.loads(json.dumps(entries)) == entries
    for entry in entries:
        assert set(entry["schema"]["properties"]) == {"type", *DESIGN_FIELDS[entry["type"]]}
        assert entry["schema"]["additionalProperties"] is False
        assert entry["family"] in {*entry["families"], None}
        assert entry["description"].endswith(".")
        jsonschema.Draft202012Validator.check_schema(entry["schema"])
        jsonschema.validate(entry["example"], entry["schema"])
        assert parse(entry["example"]).instruction() == entry["instruction"]
        assert isinstance(parse(entry["example"]), Constraint)
    assert {family for cls in REGISTRY.values() for family in cls.families} == set(FAMILIES)


@pytest.mark.parametrize(
    ("count", "family"),
    [
        (1, None),
        (2, "ccg-multi"),
        (3, "commongen-k3"),
        (4, "commongen-k4"),
        (5, "commongen-k5"),
        (6, None),
        (9, None),
        (10, "commongen-k10"),
        (11, None),
    ],
)
def test_keyword_family_by_number(count, family):
    assert Keywords(tuple(f"w{i}" for i in range(count))).family == family


KEY_A = {"type": "keywords", "keywords": ["dog"]}
KEY_B = {"type": "keywords", "keywords": ["ball", "sun", "sea"]}
RATIO = {"type": "length_ratio", "source": "a b c d e f g h i j"}
NO_COMMA = {"type": "no_comma"}


@pytest.mark.parametrize(
    ("members", "family"),
    [
        ([KEY_A, KEY_B], "ccg-multi"),
        ([KEY_A, RATIO], "ccg-multi"),
        ([KEY_A, KEY_B, RATIO], "ccg-multi"),
        ([KEY_A, RATIO, {**RATIO, "high": 0.9}], None),
        ([KEY_B, NO_COMMA], None),
        ([RATIO, NO_COMMA], None),
        ([KEY_B], "commongen-k3"),
        ([NO_COMMA], "ifeval-no-comma"),
    ],
    ids=str,
)
def test_all_of_family(members, family):
    assert parse({"type": "all_of", "constraints": members}).family == family


@pytest.mark.parametrize(
    ("spec", "instruction"),
    [
        ({"type": "keywords", "keywords": ["dog", "beach"]}, "Use the words: dog, beach."),
        ({"type": "word_count", "min_words": 5, "max_words": 9}, "Use between 5 and 9 words."),
        ({"type": "word_count", "min_words": 5}, "Use at least 5 words."),
        ({"type": "word_count", "min_words": 0, "max_words": 9}, "Use at most 9 words."),
        ({"type": "word_count", "min_words": 1, "max_words": 1}, "Use exactly 1 word."),
        ({"type": "no_comma"}, "Do not use any commas."),
        (
            {"type": "length_ratio", "source": "Is it\nso?", "high": 1},
            "Rewrite this text: Is it so? Use between 2 and 3 words.",
        ),
        ({"type": "all_of", "constraints": [KEY_A, NO_COMMA]}, "Use the words: dog. Do not use any commas."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_instructions(spec, instruction):
    assert parse(spec).instruction() == instruction


@settings(deadline=None)
@given(SPECS)
def test_round_trip_and_instruction(spec):
    constraint = parse(spec)
    jsonschema.validate(spec, REGISTRY[spec["type"]].schema())
    again = parse(json.loads(json.dumps(constraint.to_spec())))
    assert again == constraint
    assert hash(again) == hash(constraint)
    assert pickle.loads(pickle.dumps(constraint)) == constraint
    instruction = constraint.instruction()
    assert instruction[0].isupper()
    assert instruction.endswith(".")
    assert constraint.family in {*constraint.families, None}


@settings(deadline=None)
@given(SPECS, TEXTS)
def test_scores_are_one_exactly_when_satisfied(spec, text):
    constraint = parse(spec)
    outcome = constraint.evaluate(text)
    assert outcome == constraint.evaluate(text)
    assert (outcome.score == 1.0) is outcome.satisfied is all(check.satisfied for check in outcome.checks)
    assert 0.0 <= outcome.score <= 1.0
    names = [check.name for check in outcome.checks]
    assert len(set(names)) == len(names)
    if outcome.satisfied:
        assert text.strip()
        lowered = text.casefold()
        assert all(phrase.casefold() in lowered for phrase in constraint.required_text())
    assert constraint.minimum_words() >= 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True), TEXTS, st.sampled_from(WORDS))
def test_more_keywords_never_lower_the_score(keywords, text, extra):
    constraint = Keywords(tuple(keywords))
    before = constraint.evaluate(text).score
    assert constraint.evaluate(f"{text} {extra}").score >= before
    assert constraint.evaluate(" ".join(keywords)).satisfied
    assert len(" ".join(keywords).split()) >= constraint.minimum_words()


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 14), RELATIONS)
def test_counts_are_monotone(count, letters, relation):
    constraint = parse({"type": "letter_frequency", "letter": "q", "relation": relation, "count": count})
    scores = [constraint.evaluate("." + "q" * n).score for n in (letters, letters + 1)]
    assert scores == (sorted(scores) if relation == "at_least" else sorted(scores, reverse=True))


@settings(deadline=None)
@given(st.lists(SPECS, min_size=1, max_size=4), TEXTS)
def test_all_of_is_the_conjunction_of_its_members(specs, text):
    try:
        constraint = parse({"type": "all_of", "constraints": specs})
    except ValueError:
        # Refused as contradictory: then no text may satisfy all members, this one included.
        assert (
            len({json.dumps(spec, sort_keys=True) for spec in specs}) < len(specs)
            or _repeats(specs)
            or not all(parse(spec).evaluate(text).satisfied for spec in specs)
        )
        return
    outcomes = [parse(spec).evaluate(text) for spec in specs]
    joint = constraint.evaluate(text)
    assert joint.satisfied is all(outcome.satisfied for outcome in outcomes)
    assert joint.checks == tuple(check for outcome in outcomes for check in outcome.checks)
    assert parse(constraint.to_spec()) == constraint
    assert constraint.minimum_words() >= max(parse(spec).minimum_words() for spec in specs)


def _repeats(specs):
    """Members that are equal, or share a keyword, are refused although a text could meet them."""
    constraints = [parse(spec) for spec in specs]
    keywords = [word for spec in specs if spec["type"] == "keywords" for word in spec["keywords"]]
    return len(set(constraints)) < len(constraints) or len(set(keywords)) < len(keywords)


def test_results_refuse_inconsistent_scores():
    with pytest.raises(ValueError, match="does not fit"):
        Check("x", True, 0.5, "")
    with pytest.raises(ValueError, match="does not fit"):
        Check("x", False, float("nan"), "")
    with pytest.raises(ValueError, match="at least one"):
        Verdict.of(())
    nearly = Check.graded("x", False, 1.0, "")
    assert Verdict.of([nearly]).score < 1.0


def test_the_package_loads_neither_torch_nor_scikit_learn():
    code = "import sys, decoding.constraints; print({'torch', 'sklearn', 'nltk'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=reference.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
