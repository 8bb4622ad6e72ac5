"""`negative_prompt` over HTTP: replayable, refused where nothing reads it, and no gate claims to know it."""

from __future__ import annotations

import pytest

from service.generation.prepare import NEGATIVE
from tests.service.process import error_of

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
BODY = {"constraint": KEYWORDS, "seed": 7, "gen_length": 16, "policy": {"preset": "full_cfg"}}
AWAY = "Write about a cat in a kitchen."


def sample(server, **fields):
    return server.generate({**BODY, **fields})["samples"][0]


def test_the_same_request_gives_the_same_text_and_another_than_without(server):
    away = sample(server, negative_prompt=AWAY)
    assert away["text"] == sample(server, negative_prompt=AWAY)["text"]
    assert away["text"] != sample(server)["text"]
    assert away["forward_evaluations"] == sample(server)["forward_evaluations"]


@pytest.mark.parametrize("source", ["policy", "constant", "value", "recorded"])
def test_a_family_s_gate_does_not_serve_it(server, source):
    policy = {"defaults": "paper", "preset": "handoff", "gate": {"source": source}}
    gate = sample(server, negative_prompt=AWAY, policy=policy)["gate"]
    assert (gate["source"], gate["evidence"]) == ("drained", "pooled")
    assert NEGATIVE in gate["fallback_reason"]
    refused = {**BODY, "negative_prompt": AWAY, "policy": {**policy, "on_fallback": "reject"}}
    assert NEGATIVE in error_of(server.client.post("/generate", json=refused), 422)["message"]


def test_drained_gates_are_the_pooled_one(server):
    policy = {"defaults": "paper", "gate": "drained"}
    assert sample(server, negative_prompt=AWAY, policy=policy)["gate"]["evidence"] == "pooled"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"negative_prompt": " "}, "is empty"),
        ({"negative_prompt": AWAY, "policy": {"preset": "base"}}, "never guides"),
        ({"negative_prompt": "word " * 3000}, "takes at most"),
    ],
)
def test_what_nothing_would_read_is_refused(server, fields, said):
    error = error_of(server.client.post("/generate", json={**BODY, **fields}), 422)
    assert error["param"] == "negative_prompt"
    assert said in error["message"]


def test_repair_and_attempts_keep_it(server):
    for policy in ({"preset": "reopen_repair"}, {"preset": "auto"}):
        first, second = (sample(server, negative_prompt=AWAY, policy=policy) for _ in range(2))
        assert first["text"] == second["text"]
