"""Constraints for work of one's own and families of one's own, over HTTP."""

from __future__ import annotations

import pytest

from decoding.constraints import parse
from tests.decoding.constraints.general.test_predicates import install
from tests.service.process import ServerProcess

SHORT = {"gen_length": 12, "steps": 2, "policy": {"preset": "base"}, "seed": 1}
YES_NO = {"type": "one_of", "labels": ["yes", "no"]}
SPECS = [
    {"type": "regex", "pattern": "^[a-z ]+$", "mode": "full", "meaning": "small letters"},
    {"type": "contains", "phrases": ["dog"], "inside_words": False},
    {"type": "not_contains", "phrases": ["dog", "cat"], "case_sensitive": True},
    {"type": "starts_with", "phrase": "A dog"},
    {"type": "ends_with", "phrase": "."},
    {"type": "json", "json_schema": {"type": "object", "required": ["a"], "properties": {"a": {"pattern": "(a+)+$"}}}},
    {"type": "json"},
    {"type": "characters", "min_characters": 5, "max_characters": 90},
    {"type": "sentences", "max_sentences": 2},
    YES_NO,
    {"type": "any_of", "constraints": [YES_NO, {"type": "all_of", "constraints": [{"type": "no_comma"}]}]},
    {"type": "none_of", "constraints": [YES_NO, {"type": "starts_with", "phrase": "Sorry"}]},
    {"type": "python", "name": "no_repeats"},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["type"])
def test_answers_carry_the_verdict_of_the_text(server, spec):
    (sample,) = server.generate({"constraint": spec, **SHORT})["samples"]
    expected = parse(spec).evaluate(sample["text"])
    assert (sample["satisfied"], sample["score"]) == (expected.satisfied, pytest.approx(expected.score))
    assert [check["name"] for check in sample["checks"]] == [check.name for check in expected.checks]


REFUSED = [
    ({"type": "regex", "pattern": "(a)\\1"}, "constraint.pattern", "back references"),
    (
        {"type": "json", "json_schema": {"$ref": "https://example.com"}},
        "constraint.json_schema.$ref",
        "must be one of #",
    ),
    ({"type": "json", "json_schema": {"enum": []}}, "constraint.json_schema", "no value"),
    ({"type": "python", "name": "os.system"}, "constraint.name", "it has: no_repeats"),
    ({"type": "characters", "min_characters": 9, "max_characters": 8}, "constraint.min_characters", "above"),
    (
        {"type": "all_of", "constraints": [YES_NO, {"type": "contains", "phrases": ["maybe"]}]},
        "constraint.constraints[1]",
        "no label meets it",
    ),
    (
        {"type": "any_of", "constraints": [YES_NO, {"type": "ends_with"}]},
        "constraint.constraints[1].phrase",
        "is missing",
    ),
]


@pytest.mark.parametrize(("spec", "param", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_no_text_can_satisfy_is_refused(server, spec, param, words):
    reply = server.client.post("/generate", json={"constraint": spec, **SHORT})
    assert reply.status_code == 422
    error = reply.json()["error"]
    assert error["param"] == param
    assert words in error["message"]


def test_predicates_are_listed(server):
    (built_in,) = server.client.get("/v1/constraints").json()["predicates"]
    assert built_in["name"] == "no_repeats"
    assert built_in["instruction"].endswith(".")


def test_predicates_of_the_operator_are_served(tmp_path, monkeypatch):
    install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    own = ServerProcess(tmp_path / "log", command=True)
    try:
        own.wait_for(200)
        listed = own.client.get("/v1/constraints").json()["predicates"]
        assert [entry["name"] for entry in listed] == ["no_repeats", "broken", "far", "half", "polite"]
        for name, score in (("half", 0.5), ("broken", 0.0)):
            (sample,) = own.generate({"constraint": {"type": "python", "name": name}, **SHORT})["samples"]
            assert sample["score"] == score
        unknown = own.client.post("/generate", json={"constraint": {"type": "python", "name": "rude"}, **SHORT})
        assert (unknown.status_code, "half, polite" in unknown.json()["error"]["message"]) == (422, True)
    finally:
        own.stop()


def test_a_canvas_has_room_for_what_is_asked(server):
    for spec, least in (
        ({"type": "characters", "min_characters": 240}, 40),
        ({"type": "sentences", "min_sentences": 3}, 24),
        ({"type": "all_of", "constraints": [{"type": "sentences", "min_sentences": 3}, {"type": "no_comma"}]}, 24),
    ):
        assert server.generate({"constraint": spec, "policy": {"preset": "base"}, "steps": 2})["gen_length"] >= least


@pytest.mark.parametrize("constraint", [None, YES_NO, {"type": "keywords", "keywords": ["dog", "ball", "beach"]}])
def test_a_family_of_one_s_own_goes_by_its_name(server, constraint):
    body = {"prompt": "Write.", "constraint": constraint, "family": "My.replies-2_b", "gen_length": 8, "seed": 1}
    answer = server.generate(body)
    assert answer["family"] == "My.replies-2_b"
    (sample,) = answer["samples"]
    assert sample["gate"]["version"] == "pooled-1"  # no gate of another family is borrowed
    fraction = {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.5}}
    assert server.generate({**body, "policy": fraction})["samples"][0]["gate"]["decision"] == "handoff"
    refused = {"preset": "handoff", "gate": {"source": "value"}, "on_fallback": "reject"}
    reply = server.client.post("/generate", json={**body, "policy": refused})
    assert (reply.status_code, "My.replies-2_b" in reply.json()["error"]["message"]) == (422, True)


def test_openai_s_routes_take_it_too(server):
    (model,) = server.client.get("/v1/models").json()["data"]
    body = {
        "model": model["id"],
        "prompt": "Write.",
        "family": "mine",
        "max_tokens": 8,
        "constraint": YES_NO,
        "seed": 1,
    }
    assert server.client.post("/v1/completions", json=body).status_code == 200
    assert server.client.post("/v1/completions", json={**body, "family": "no good"}).status_code == 422


def test_metrics_hold_no_family_of_a_client(server):
    server.generate({"prompt": "Write.", "family": "quixotic", **SHORT})
    text = server.client.get("/metrics").text
    assert "quixotic" not in text
