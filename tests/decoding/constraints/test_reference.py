"""The predicates against the benchmarks' own examples and arguments."""

from __future__ import annotations

import json
import re

import pytest

from decoding.constraints import parse
from decoding.constraints.compose.all_of import AllOf
from decoding.constraints.paper.cognac import Avoid
from decoding.constraints.paper.keywords import Keywords
from tests.decoding.constraints import reference


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in reference.collie()])
def test_collie_examples_satisfy_their_constraint(record):
    constraint = parse(reference.collie_spec(record))
    outcome = constraint.evaluate(record["example"])
    assert outcome.satisfied, outcome
    assert constraint.minimum_words() <= len(record["example"].split())


@pytest.mark.parametrize("record", [r for r in reference.collie() if r["family"] == "c06a"], ids=lambda r: r["id"])
def test_collie_c06a_bounds_are_tight(record):
    """In the data both bounds are exact, so one word more or one character fewer must fail."""
    spec = reference.collie_spec(record)
    assert not parse({**spec, "min_words": spec["min_words"] + 1}).evaluate(record["example"]).satisfied
    if spec["max_chars"] > 1:
        assert not parse({**spec, "max_chars": spec["max_chars"] - 1}).evaluate(record["example"]).satisfied


@pytest.mark.parametrize("record", [r for r in reference.collie() if r["family"] == "c07"], ids=lambda r: r["id"])
def test_collie_c07_misses_a_word_cut_out(record):
    word = record["targets"][0]
    text = re.sub(rf"(?i){re.escape(word)}", "", record["example"])
    outcome = parse(reference.collie_spec(record)).evaluate(text)
    assert not next(check for check in outcome.checks if check.name == f"word: {word}").satisfied


def test_all_ifeval_arguments_are_accepted_and_belong_to_their_families():
    specs = [spec for prompt in reference.ifeval() for spec in prompt]
    families = [parse(spec).family for spec in specs]
    assert len(specs) == 166
    assert {family: families.count(family) for family in set(families)} == {
        "ifeval-kw-freq": 42,
        "ifeval-letter-freq": 33,
        "ifeval-capital-freq": 25,
        "ifeval-no-comma": 66,
    }


def test_ifeval_instructions_of_one_prompt_can_be_combined():
    prompts = [prompt for prompt in reference.ifeval() if len(prompt) > 1]
    assert len(prompts) > 10
    for prompt in prompts:
        assert isinstance(parse({"type": "all_of", "constraints": prompt}), AllOf)


@pytest.mark.parametrize("spec", [s for prompt in reference.ifeval() for s in prompt if "keyword" in s], ids=str)
def test_ifeval_keyword_counts_are_those_of_the_regular_expression(spec):
    text = f"{spec['keyword']} un{spec['keyword'].upper()}ed, {spec['keyword']}{spec['keyword']}."
    occurrences = len(re.findall(spec["keyword"], text, re.IGNORECASE))
    relation = {"at_least": occurrences >= spec["count"], "less_than": occurrences < spec["count"]}[spec["relation"]]
    assert parse(spec).evaluate(text).satisfied is relation
    for count in (occurrences, occurrences + 1):
        assert parse({**spec, "relation": "at_least", "count": count}).evaluate(text).satisfied is (
            occurrences >= count
        )
        assert parse({**spec, "relation": "less_than", "count": count}).evaluate(text).satisfied is (
            occurrences < count
        )


needs_shared = pytest.mark.skipif(not reference.SHARED.is_dir(), reason="the data folder ../shared/data is not here")


@needs_shared
def test_commongen_references_that_use_listed_forms_are_satisfied():
    """Half or more of the references use only listed forms; those that do not are lemmatisation cases."""
    path = reference.SHARED / "commongen" / "dev.jsonl"
    records = [record for record in reference.read(path) if len(set(record["concepts"])) == len(record["concepts"])]
    met = total = 0
    for record in records[:300]:
        forms = {key: value for key, value in record["forms"].items() if key in record["concepts"]}
        spec = {"type": "keywords", "keywords": record["concepts"], "forms": forms}
        constraint = parse(spec)
        assert constraint.family == f"commongen-k{len(record['concepts'])}"
        for target in record["targets"]:
            outcome = constraint.evaluate(target)
            met += outcome.satisfied
            total += 1
            if outcome.satisfied:
                assert constraint.minimum_words() <= len(target.split())
    assert met / total > 0.5


@needs_shared
def test_wordnet_topics_with_their_branches_are_accepted():
    gzip = pytest.importorskip("gzip")
    with gzip.open(reference.SHARED / "cognac" / "wordnet_topics.jsonl.gz", "rt", encoding="utf-8") as lines:
        topic = json.loads(next(lines))
    words = [*topic["topical_in_corpus"], *topic["topical_other"]]
    branch = topic["branches"][0]
    constraint = Avoid(topic["topic"], tuple(dict.fromkeys(branch["forbidden"])), tuple(dict.fromkeys(words)))
    assert constraint.family == "cognac-avoidance"
    assert not constraint.evaluate(f"Here is a {branch['forbidden'][0]}.").satisfied
    allowed = constraint.allowed_topical(constraint.forbidden)[0]
    assert constraint.evaluate(f"Here is a {allowed}.").satisfied


def test_fixture_examples_are_there():
    assert len(reference.read(reference.FIXTURES / "collie_gutenberg.jsonl")) == 40
    assert isinstance(parse({"type": "keywords", "keywords": ["a"]}), Keywords)
