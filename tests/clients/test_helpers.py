"""Constraint and policy helpers cover the server's types and presets, and send what it takes."""

from __future__ import annotations

import inspect
import json
from typing import get_args, get_type_hints

import jsonschema
import pytest

from astargate_client import constraints as c
from astargate_client import policies as p
from astargate_client.transport.specs import Constraint, Gate, Policy
from tests.service.process import ROOT

COMPONENTS = json.loads((ROOT / "service" / "openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]
TYPES = {
    kind["properties"]["type"]["const"]: kind
    for kind in COMPONENTS["GenerateRequest"]["properties"]["constraint"]["anyOf"][0]["oneOf"]
}
FULL = {
    "keywords": c.keywords("dog", "ball", forms={"dog": ["dogs"]}),
    "length_ratio": c.length_ratio("one two three four", low=0.5, high=2.0),
    "word_count": c.word_count(2, 9),
    "sentiment": c.sentiment("positive", threshold=0.6),
    "keyword_frequency": c.keyword_frequency("dog", at_least=1),
    "letter_frequency": c.letter_frequency("o", less_than=9),
    "capital_frequency": c.capital_frequency(at_least=1),
    "no_comma": c.no_comma(),
    "collie_c07": c.collie_c07("the", "dog"),
    "collie_c06a": c.collie_c06a(3, 8),
    "avoid": c.avoid("animals", ["dog"], topical=["cat"]),
    "all_of": c.all_of(c.keywords("dog"), {"type": "no_comma"}),
    "any_of": c.any_of(c.keywords("dog"), {"type": "no_comma"}),
    "none_of": c.none_of(c.keywords("dog")),
    "regex": c.regex("[a-z]+", "full", meaning="a word"),
    "contains": c.contains("dog", case_sensitive=True, inside_words=False),
    "not_contains": c.not_contains("dog", case_sensitive=True, inside_words=False),
    "starts_with": c.starts_with("A dog", case_sensitive=True),
    "ends_with": c.ends_with(".", case_sensitive=False),
    "json": c.json_value({"type": "object"}),
    "characters": c.characters(5, 90),
    "sentences": c.sentences(1, 2),
    "one_of": c.one_of("yes", "no"),
    "python": c.predicate("no_repeats"),
}
LEAST = {
    "keywords": c.keywords("dog"),
    "length_ratio": c.length_ratio("one two three four"),
    "word_count": c.word_count(2),
    "sentiment": c.sentiment("negative"),
    "avoid": c.avoid("animals", ["dog"]),
    "regex": c.regex("[a-z]+"),
    "contains": c.contains("dog"),
    "not_contains": c.not_contains("dog"),
    "starts_with": c.starts_with("A dog"),
    "ends_with": c.ends_with("."),
    "json": c.json_value(),
    "characters": c.characters(),
    "sentences": c.sentences(),
}


def test_there_is_a_helper_for_every_type():
    assert set(FULL) == set(TYPES)


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_helper_gives_every_field_and_no_more_than_is_asked(kind):
    assert set(FULL[kind].to_dict()) == set(TYPES[kind]["properties"])
    jsonschema.validate(FULL[kind].to_dict(), TYPES[kind])
    least = LEAST.get(kind, FULL[kind]).to_dict()
    assert set(least) == set(TYPES[kind]["required"])
    jsonschema.validate(least, TYPES[kind])


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_the_server_takes_them(client, kind):
    answer = client.generate(constraint=FULL[kind], policy=p.base(), gen_length=24, steps=2, seed=1)
    assert answer.samples[0].checks


def test_words_of_the_helpers_are_the_server_s():
    assert list(get_args(get_type_hints(c.sentiment)["target"])) == TYPES["sentiment"]["properties"]["target"]["enum"]
    relations = {
        c.capital_frequency(at_least=1).fields["relation"],
        c.capital_frequency(less_than=1).fields["relation"],
    }
    assert relations == set(TYPES["capital_frequency"]["properties"]["relation"]["enum"])
    for wrong in ({}, {"at_least": 1, "less_than": 2}):
        with pytest.raises(TypeError, match="either at_least or less_than"):
            c.keyword_frequency("dog", **wrong)


def test_constraints_add_up():
    both = c.keywords("dog") & c.no_comma()
    assert both & c.word_count(3) == c.all_of(c.keywords("dog"), c.no_comma(), c.word_count(3))
    assert repr(c.no_comma()) == "no_comma()"
    assert repr(c.keywords("dog")) == "keywords(keywords=('dog',))"
    assert len({both, c.keywords("dog") & c.no_comma()}) == 1
    with pytest.raises(TypeError):
        c.no_comma() & {"type": "no_comma"}
    either = c.keywords("dog") | c.no_comma()
    assert either | c.word_count(3) == c.any_of(c.keywords("dog"), c.no_comma(), c.word_count(3))
    assert either & c.word_count(3) == c.all_of(either, c.word_count(3))
    assert ~c.no_comma() == c.none_of(c.no_comma())
    with pytest.raises(TypeError):
        c.no_comma() | {"type": "no_comma"}


def names(schema: dict) -> set[str]:
    return set(schema["anyOf"][0]["enum"])


def test_there_is_a_helper_for_every_preset():
    for preset in names(COMPONENTS["PolicyRequest"]["properties"]["preset"]):
        made = getattr(p, preset)(guidance_scale=1.0)
        assert isinstance(made, Policy)
        assert made.to_dict() == {"preset": preset, "guidance_scale": 1.0}


def test_gates_are_names_objects_or_dictionaries():
    sources = names(COMPONENTS["GateRequest"]["properties"]["source"])
    named = [p.fraction(0.3), p.drained(0.5), p.drained(margin=0.05), p.risk(0.03, 0.95), p.value(0.002)]
    assert {gate.kind for gate in named} <= sources
    for gate in named:
        assert isinstance(gate, Gate)
        assert gate.fields.keys() <= COMPONENTS["GateRequest"]["properties"].keys()
    wanted = {"preset": "handoff", "gate": {"source": "policy"}, "tail_width": 8}
    assert p.handoff(gate="policy", tail_width=8).to_dict() == wanted
    assert p.handoff({"source": "policy"}, tail_width=8).to_dict() == wanted
    assert p.drained().to_dict() == {"source": "drained"}
    assert p.drained(margin=0.05).to_dict() == {"source": "drained", "margin": 0.05}
    assert p.drained(0.5, recheck=4).to_dict() == {"source": "drained", "threshold": 0.5, "recheck": 4}


def test_gate_helpers_take_every_setting_of_their_source(client):
    """The server names the settings of each source; `fraction` calls its own `share`."""
    for source in client.policies().gate_sources:
        if helper := getattr(p, source.source, None):
            taken = {"fraction" if name == "share" else name for name in inspect.signature(helper).parameters}
            assert taken == set(source.fields)


def test_a_misspelt_setting_is_refused_at_once():
    with pytest.raises(TypeError, match="did you mean 'tail_width'"):
        p.handoff(tail_widht=8)
    with pytest.raises(TypeError, match="gate"):
        p.full_cfg(gate="policy")


@pytest.mark.parametrize(
    "policy",
    [
        p.base(tail_width=4),
        p.full_cfg(guidance_scale=1.0, guided_width=2),
        p.handoff(p.fraction(0.3), tail_width=4),
        p.handoff("policy"),
        p.handoff(p.drained(0.5), order="guidance_boost"),
        p.parallel_tail({"source": "fraction", "fraction": 0.5}),
        {"preset": "base"},
    ],
    ids=repr,
)
def test_the_server_takes_policies(client, policy):
    answer = client.generate("Write.", policy=policy, gen_length=8, seed=1)
    assert answer.policy.preset == (policy.kind if isinstance(policy, Policy) else policy["preset"])


def test_a_type_of_tomorrow_can_be_sent(client):
    from astargate_client import InvalidRequestError

    for given in ({"type": "rhyme", "with": "moon"}, Constraint({"type": "rhyme"})):
        with pytest.raises(InvalidRequestError) as caught:
            client.generate(constraint=given)
        assert caught.value.param == "constraint.type"


def test_a_number_behind_a_gate_s_name_is_left_to_the_server(client):
    assert p.handoff("fraction:0.3").to_dict() == {"preset": "handoff", "gate": "fraction:0.3"}
    answer = client.generate("Write.", policy=p.handoff("fraction:0.5"), gen_length=4, seed=1)
    assert answer.policy.gate.fraction == 0.5


def test_a_policy_may_be_a_short_name(client):
    answer = client.generate("Write.", policy="handoff:0.5:k2", gen_length=4, seed=1)
    assert (answer.policy.preset, answer.policy.tail_width) == ("handoff", 2)
    assert client.generate(constraint=c.keywords("dog"), policy="auto", gen_length=4, seed=1).policy.preset == "auto"


@pytest.mark.parametrize("words", [(), ("",), ("dog", " ")])
def test_keywords_need_words(words):
    with pytest.raises(ValueError, match="needs words"):
        c.keywords(*words)
