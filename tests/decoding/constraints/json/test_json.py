"""JSON texts and the part of JSON Schema that requests may use: what holds, what is refused, and what it may cost."""

from __future__ import annotations

import json
import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.constraints import ConstraintError, parse
from decoding.constraints.json import schema as schemas
from decoding.constraints.json.document import Json

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab1", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)
PARTS = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "string"},
            {"type": ["integer", "null"]},
            {"type": "boolean"},
            {"pattern": "^a"},
            {"minimum": 0},
            {"multipleOf": 2},
            {"maxLength": 1},
            {"uniqueItems": True},
            {"enum": [1, "a", None]},
            {"const": [1]},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"items": inner, "minItems": st.just(1)}),
        st.fixed_dictionaries({"properties": st.fixed_dictionaries({"a": inner}), "required": st.just(["a"])}),
        st.fixed_dictionaries({"additionalProperties": inner}),
    ),
    max_leaves=4,
)


def of(schema=None):
    return parse({"type": "json", "json_schema": schema})


def judged(text, schema=None):
    return of(schema).evaluate(text)


@pytest.mark.parametrize("text", ['{"a": 1}', " [1, 2.5e3]\n", '"dog"', "null", "12", "-0.5", '"\\ud83d\\ude42"'])
def test_json_texts(text):
    assert judged(text).satisfied


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"a": 1', 1.0),
        ('{"a": 1} and', 0.75),
        ("dog", 0.0),
        ("{'a': 1}", 0.125),
        ("NaN", 0.0),
        ("[Infinity]", 0.0),
        ("1e999", 0.0),
        ("9" * 5000, 0.0),
        ("[" * 30 + "]" * 30, 0.0),
        ("[" * 100_000, 0.0),
        ('"' + "a" * 100_000 + '"', 0.0),
    ],
)
def test_texts_that_are_none(text, score):
    outcome = judged(text)
    assert not outcome.satisfied
    assert outcome.score == pytest.approx(score)
    assert len(outcome.checks[0].detail) < 100


def test_a_schema_is_graded_by_its_errors():
    good = judged('{"name": "Ann", "age": 3}', PERSON)
    assert (good.satisfied, good.score) == (True, 1.0)
    one, two = judged('{"name": "Ann", "age": -3}', PERSON), judged('{"name": "", "age": -3}', PERSON)
    assert 1 > one.score > two.score > judged("{", PERSON).score
    assert one.checks[1].detail == "age: -3 is less than the minimum of 0"
    assert [check.satisfied for check in judged("{", PERSON).checks] == [False, False]


@settings(deadline=None, max_examples=150)
@given(PARTS, VALUES)
def test_it_agrees_with_the_library(schema, value):
    try:
        satisfied = judged(json.dumps(value), schema).satisfied
    except ConstraintError:
        satisfied = False  # refused as met by no value
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert satisfied is expected


@given(PARTS, VALUES)
@settings(deadline=None)
def test_a_satisfying_text_has_the_least_characters(schema, value):
    text = json.dumps(value, separators=(",", ":"))
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert len(text) >= of(schema).minimum_characters()
        assert of(schema).evaluate(text).satisfied


def test_least_characters_count_names_and_bounds():
    assert of(PERSON).minimum_characters() == len('{"name":"a","age":3}') == 20
    assert of({"type": "array", "minItems": 3, "items": {"type": "boolean"}}).minimum_characters() == 16
    assert of({"enum": ["yes", "no"]}).minimum_characters() == 4
    assert of().minimum_characters() == 1


def test_references_stay_inside():
    tree = {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    assert judged("[[], [[]]]", tree).satisfied
    assert not judged("[[1]]", tree).satisfied
    listed = {"type": "object", "required": ["a"], "properties": {"a": {"enum": [1, "b"], "$ref": "#/$defs/s"}}}
    assert judged('{"a": "b"}', {**listed, "$defs": {"s": {"type": "string"}}}).satisfied
    with pytest.raises(ConstraintError, match="no listed value"):
        of({**listed, "$defs": {"s": {"type": "array"}}})


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("[1, 1.0]", {"uniqueItems": True}, False),
        ("[1, true]", {"uniqueItems": True}, True),
        ('[{"a": [0]}, {"a": [false]}]', {"uniqueItems": True}, True),
        ('[{"a": 1}, {"a": 1}]', {"uniqueItems": True}, False),
        ('"2024-05-31"', {"format": "date"}, True),
        ('"2024-05-32"', {"format": "date"}, False),
        ('"a@b.c"', {"format": "email"}, True),
        ('"::1"', {"format": "ipv6"}, True),
        ('"1.2.3"', {"format": "ipv4"}, False),
    ],
)
def test_unique_items_and_formats(text, schema, expected):
    assert judged(text, schema).satisfied is expected


DEEP: dict = {}
for _ in range(30):
    DEEP = {"items": DEEP}
FAULTS = [
    (3, ""),
    ([], ""),
    ("{}", ""),
    ({"typ": "x"}, ""),
    ({"type": "x"}, ".type"),
    ({"properties": {"a": {"minlength": 1}}}, ".properties.a"),
    ({"$ref": "https://example.com/schema"}, ".$ref"),
    ({"$ref": "#/$defs/none"}, ".$ref"),
    ({"$ref": "other.json"}, ".$ref"),
    ({"$schema": "http://json-schema.org/draft-07/schema#"}, ".$schema"),
    ({"$id": "a"}, ""),
    ({"patternProperties": {}}, ""),
    ({"pattern": "(a)\\1"}, ".pattern"),
    ({"items": {"pattern": "("}}, ".items.pattern"),
    ({"format": "date-time"}, ".format"),
    ({"multipleOf": 10**400}, ".multipleOf"),
    ({"multipleOf": 0}, ".multipleOf"),
    ({"const": float("nan")}, ".const"),
    ({"const": "\ud800"}, ".const"),
    ({"const": {1, 2}}, ".const"),
    ({"allOf": [{}, {"type": 3}]}, ".allOf[1].type"),
    (DEEP, ""),
    ({"description": "x" * 10_001}, ""),
    ({"enum": [1, 2], "type": "string"}, ""),
    ({"type": "string", "minLength": 3, "maxLength": 2}, ""),
    ({**PERSON, "required": ["name", "email"]}, ""),
    ({**PERSON, "maxProperties": 1}, ""),
    ({**PERSON, "properties": {"name": False, "age": {}}}, ""),
]


@pytest.mark.parametrize(("schema", "place"), FAULTS, ids=lambda value: ascii(value)[:40])
def test_faults_are_named(schema, place):
    with pytest.raises(ConstraintError) as caught:
        of(schema)
    assert caught.value.param == f"json_schema{place}"
    assert len(caught.value.reason) < 600


def test_a_schema_that_costs_too_much_fails_in_time():
    levels = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    doubling = {"$defs": {**levels, "a40": {"type": "string"}}, "$ref": "#/$defs/a0"}
    for schema in (doubling, {"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"not": {"$ref": "#"}}]}):
        started = time.process_time()
        outcome = judged("3", schema)
        assert "too many steps" in outcome.checks[1].detail
        assert time.process_time() - started < 5
    assert schemas.MAX_STEPS <= 5_000


@pytest.mark.parametrize("kind", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("listed", [range(1000), [1]])
def test_values_that_cost_too_much_to_try_are_refused_in_time(kind, listed):
    levels = {f"a{n}": {kind: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)}
    schema = {
        "enum": list(listed),
        "$ref": "#/$defs/a0",
        "$defs": {**levels, "a20": {"type": "integer" if kind == "allOf" else "string"}},
    }
    nested = {"type": "object", "required": ["a"], "properties": {"a": {**schema, "$defs": {}}}}
    for each in (schema, {**nested, "$defs": schema["$defs"]}, {"enum": [1], "$ref": "#"}):
        started = time.process_time()
        with pytest.raises(ConstraintError, match="more than 5000 steps"):
            of(each)
        assert time.process_time() - started < 5


def test_equality_minds_types_and_not_the_order_of_names():
    assert of({"const": 1}) != of({"const": True})
    assert of({"type": "string", "minLength": 1}) == of({"minLength": 1, "type": "string"})
    given = {"type": "string"}
    constraint = Json(given)
    given["type"] = "number"
    assert constraint.evaluate('"a"').satisfied
    constraint.to_spec()["json_schema"]["type"] = "number"
    assert constraint.to_spec() == {"type": "json", "json_schema": {"type": "string"}}
