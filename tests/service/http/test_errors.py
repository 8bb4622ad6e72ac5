"""One error body on every path, and a `param` that names the field at fault."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.service.process import error_of

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}


def policy(**fields):
    return {"prompt": "a", "policy": fields}


def gate(**fields):
    return policy(gate=fields)


REFUSED = [
    ({"prompt": "a", "colour": "red"}, "colour", "unknown_field"),
    ({"prompt": 3}, "prompt", "wrong_type"),
    ({"prompt": None}, "prompt", "wrong_type"),
    ({"prompt": ""}, "prompt", "invalid_value"),
    ({"prompt": "  \n"}, "prompt", "invalid_value"),
    ({"prompt": "", "constraint": KEYWORDS, "render_constraint": False}, "prompt", "invalid_value"),
    ({"prompt": "word " * 3000}, "prompt", "invalid_value"),
    ({"prompt": "a" * 200_000}, "prompt", "invalid_value"),
    ({"prompt": "a", "n": True}, "n", "wrong_type"),
    ({"prompt": "a", "n": 0}, "n", "invalid_value"),
    ({"prompt": "a", "n": 10**9}, "n", "invalid_value"),
    ({"prompt": "a", "n": 65}, "n", "invalid_value"),
    ({"prompt": "a", "gen_length": 16.0}, "gen_length", "wrong_type"),
    ({"prompt": "a", "gen_length": "16"}, "gen_length", "wrong_type"),
    ({"prompt": "a", "gen_length": 0}, "gen_length", "invalid_value"),
    ({"prompt": "a", "gen_length": 10**30}, "gen_length", "invalid_value"),
    ({"prompt": "a", "gen_length": 4000, "policy": {"preset": "base"}}, "gen_length", "invalid_value"),
    ({"constraint": {"type": "word_count", "min_words": 20}, "gen_length": 8}, "gen_length", "canvas_too_short"),
    ({"constraint": KEYWORDS, "gen_length": 2}, "gen_length", "canvas_too_short"),
    ({"prompt": "a", "n": 64, "gen_length": 8, "steps": 4096}, "n", "too_large"),
    ({"prompt": "a", "n": 64, "gen_length": 8, "steps": 513, "policy": {"preset": "base"}}, "n", "too_large"),
    ({"prompt": "a", "n": 2, "steps": 2049, "trace": True, "policy": {"preset": "base"}}, "n", "too_large"),
    ({"prompt": "a", "steps": -1}, "steps", "invalid_value"),
    ({"prompt": "a", "steps": 10**6}, "steps", "invalid_value"),
    ({"prompt": "a", "gen_length": 16, "block_length": 5}, "block_length", "invalid_value"),
    ({"prompt": "a", "temperature": float("nan")}, "temperature", "invalid_value"),
    ({"prompt": "a", "temperature": float("inf")}, "temperature", "invalid_value"),
    ({"prompt": "a", "temperature": -0.1}, "temperature", "invalid_value"),
    ({"prompt": "a", "temperature": True}, "temperature", "wrong_type"),
    ({"prompt": "a", "top_p": 0}, "top_p", "invalid_value"),
    ({"prompt": "a", "top_p": 1.5}, "top_p", "invalid_value"),
    ({"prompt": "a", "confidence": "vibes", "policy": {"preset": "base"}}, "confidence", "invalid_value"),
    ({"prompt": "a", "confidence": "probability", "policy": {"order": "random"}}, "confidence", "invalid_value"),
    ({"prompt": "a", "render_constraint": True}, "render_constraint", "invalid_value"),
    ({"prompt": "a", "render_constraint": False, "constraint": None}, "render_constraint", "invalid_value"),
    ({"prompt": "a", "seed": -1}, "seed", "invalid_value"),
    ({"prompt": "a", "seed": 2**64}, "seed", "invalid_value"),
    ({"prompt": "a", "seed": 2**53 - 1, "n": 2, "policy": {"preset": "base"}}, "seed", "invalid_value"),
    ({"prompt": "a", "deadline_s": 0}, "deadline_s", "invalid_value"),
    ({"prompt": "a", "deadline_s": 1e6, "policy": {"preset": "base"}}, "deadline_s", "invalid_value"),
    ({"prompt": "a", "eos_fill": 1}, "eos_fill", "wrong_type"),
    ({"prompt": "a", "eos_fill": True, "suppress_eos": True}, "eos_fill", "invalid_value"),
    ({"prompt": "a", "stream": "yes"}, "stream", "wrong_type"),
    ({"prompt": "a", "family": "commongen-k3"}, "family", "invalid_value"),
    ({"constraint": KEYWORDS, "family": "commongen-k4"}, "family", "invalid_value"),
    ({"prompt": "a", "family": ""}, "family", "invalid_value"),
    ({"prompt": "a", "family": "my family"}, "family", "invalid_value"),
    ({"prompt": "a", "family": "x" * 65}, "family", "invalid_value"),
    ({"prompt": "a", "policy": "hand-off:x"}, "policy", "invalid_value"),
    (policy(preset="turbo"), "policy.preset", "invalid_value"),
    ({"prompt": "a", "policy": {"preset": "auto"}}, "policy.preset", "invalid_value"),
    ({"prompt": "a", "policy": {"preset": "reopen_repair"}}, "policy.repair", "invalid_value"),
    (policy(preset="auto", repair={}), "policy.repair", "invalid_value"),
    (policy(preset="auto", tail_width=2), "policy.tail_width", "invalid_value"),
    ({"constraint": KEYWORDS, "policy": {"preset": "auto", "budget_rows": 1}}, "policy.budget_rows", "invalid_value"),
    (policy(budget_rows=100), "policy.budget_rows", "invalid_value"),
    (policy(repair={"selector": "luck"}), "policy.repair.selector", "invalid_value"),
    (policy(repair={"reopen": 17}), "policy.repair.reopen", "invalid_value"),
    (policy(repair={"reopen": 0}), "policy.repair.reopen", "invalid_value"),
    (policy(repair={"max_rounds": -1}), "policy.repair.max_rounds", "invalid_value"),
    (policy(repair={"rollouts": 2}), "policy.repair.rollouts", "invalid_value"),
    (policy(repair={"when": 2}), "policy.repair.when", "unknown_field"),
    (policy(repair={"anchor": "start"}), "policy.repair.anchor", "invalid_value"),
    (policy(repair={"anchor": 1.5}), "policy.repair.anchor", "invalid_value"),
    ({"constraint": KEYWORDS, "policy": {"repair": {}, "budget_rows": 3}}, "policy.budget_rows", "invalid_value"),
    ({"constraint": KEYWORDS, "policy": {"repair": {"selector": "committor", "anchor": 0, "rollouts": 64}}},
     "policy.repair.selector", "too_large"),
    (policy(speed=9), "policy.speed", "unknown_field"),
    (policy(guidance_scale=float("nan")), "policy.guidance_scale", "invalid_value"),
    (policy(guidance_scale=-1), "policy.guidance_scale", "invalid_value"),
    (policy(guidance_scale="2"), "policy.guidance_scale", "wrong_type"),
    (policy(guidance_scale=0), "policy.guidance_scale", "invalid_value"),
    (policy(preset="full_cfg", guidance_scale=0.0), "policy.guidance_scale", "invalid_value"),
    (policy(preset="base", guidance_scale=2.0), "policy.guidance_scale", "invalid_value"),
    (policy(preset="full_cfg", tail_width=4), "policy.tail_width", "invalid_value"),
    (policy(preset="full_cfg", gate={"source": "never"}), "policy.gate", "invalid_value"),
    (policy(preset="parallel_tail", tail_width=17), "policy.tail_width", "invalid_value"),
    (policy(tail_width=True), "policy.tail_width", "wrong_type"),
    (policy(tail_width=2.0), "policy.tail_width", "wrong_type"),
    (policy(tail_threshold=0.9), "policy.tail_threshold", "invalid_value"),
    (policy(order="alphabetical"), "policy.order", "invalid_value"),
    (policy(on_fallback="panic"), "policy.on_fallback", "invalid_value"),
    (policy(on_fallback="reject"), "policy.gate.source", "gate_unavailable"),
    (gate(source="oracle"), "policy.gate.source", "invalid_value"),
    (gate(source="fraction"), "policy.gate.fraction", "invalid_value"),
    (gate(source="fraction", fraction=1.5), "policy.gate.fraction", "invalid_value"),
    (gate(source="fraction", fraction=float("nan")), "policy.gate.fraction", "invalid_value"),
    (gate(source="fraction", fraction=True), "policy.gate.fraction", "wrong_type"),
    (gate(source="fraction", fraction=0.3, margin=0.1), "policy.gate.margin", "invalid_value"),
    (gate(fraction=0.3), "policy.gate.fraction", "invalid_value"),
    (gate(source="never", threshold=0.5), "policy.gate.threshold", "invalid_value"),
    (gate(source="never", when=1), "policy.gate.when", "unknown_field"),
    ({"constraint": "dog"}, "constraint", "wrong_type"),
    ({"constraint": {}}, "constraint.type", "invalid_constraint"),
    ({"constraint": {"type": "rhyme"}}, "constraint.type", "invalid_constraint"),
    ({"constraint": {"type": "keywords"}}, "constraint.keywords", "invalid_constraint"),
    ({"constraint": {"type": "keywords", "keywords": ["a", 3]}}, "constraint.keywords[1]", "invalid_constraint"),
    ({"constraint": {**KEYWORDS, "colour": 1}}, "constraint.colour", "invalid_constraint"),
    ({"constraint": {"type": "word_count", "min_words": True}}, "constraint.min_words", "invalid_constraint"),
    ({"constraint": {"type": "word_count", "min_words": 9, "max_words": 3}},
     "constraint.min_words", "invalid_constraint"),
    ({"constraint": {"type": "word_count", "min_words": 900}}, "constraint", "constraint_too_long"),
    ({"constraint": {"type": "sentiment", "target": "positive", "threshold": float("nan")}},
     "constraint.threshold", "invalid_constraint"),
    ({"constraint": {"type": "all_of", "constraints": [KEYWORDS, {"type": "no_comma", "x": 1}]}},
     "constraint.constraints[1].x", "invalid_constraint"),
    ({"constraint": {"type": "all_of", "constraints": [
        {"type": "word_count", "min_words": 0, "max_words": 2}, {"type": "word_count", "min_words": 5}]}},
     "constraint.constraints[1]", "invalid_constraint"),
]  # fmt: skip


@pytest.mark.parametrize(("request_body", "param", "code"), REFUSED, ids=[f"{c}-{p}" for _, p, c in REFUSED])
def test_a_wrong_field_is_refused_by_name(server, request_body, param, code):
    reply = server.client.post(
        "/generate", content=json.dumps(request_body), headers={"Content-Type": "application/json"}
    )
    assert reply.status_code == 422, reply.text
    error = error_of(reply)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert param in error["message"] or code == "not_supported"


def test_the_number_needed_is_in_the_message(server):
    reply = server.client.post(
        "/generate", json={"constraint": {"type": "word_count", "min_words": 20}, "gen_length": 8}
    )
    assert "20" in error_of(reply)["message"]
    reply = server.client.post("/generate", json={"prompt": "a", "n": 64, "gen_length": 8, "steps": 4096})
    assert all(number in error_of(reply)["message"] for number in ("524288", "32768", "n = 4"))
    keyword = {"type": "keyword_frequency", "keyword": "dog", "relation": "at_least", "count": 50}
    assert "50" in error_of(server.client.post("/generate", json={"constraint": keyword, "gen_length": 16}))["message"]


def test_null_stands_for_left_out(server):
    fields = ("guidance_scale", "guided_width", "order", "gate", "tail_width", "tail_threshold", "on_fallback")
    later = ("budget_rows", "repair")
    request = {
        **{"prompt": "a", "constraint": None, "family": None, "gen_length": 4, "steps": None, "block_length": None},
        **{"top_p": None, "seed": None, "deadline_s": None},
        "policy": {"preset": "base", **dict.fromkeys((*fields, *later))},
    }
    assert server.client.post("/generate", json=request).status_code == 200


BROKEN = [
    '{"prompt": ',
    "",
    "prompt=a",
    '{"prompt": "a"} x',
    "[" * 100_000,
    '{"n": ' + "9" * 5000 + "}",
    "\x00",
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_is_not_json_gets_400(server, content):
    reply = server.client.post("/generate", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400, reply.text
    assert error_of(reply)["code"] == "not_json"


def test_json_must_be_declared(server):
    reply = server.client.post("/generate", content='{"prompt": "a"}', headers={"Content-Type": "text/plain"})
    assert reply.status_code == 400
    assert "application/json" in error_of(reply)["message"]


@pytest.mark.parametrize("content", ["[]", "3", '"a"', "null", "true", "NaN"])
def test_json_that_is_no_object_gets_422(server, content):
    reply = server.client.post("/generate", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422, reply.text
    assert error_of(reply)["param"] is None


def test_lone_surrogates_are_refused_and_survive_the_answer(server):
    for content in (r'{"prompt": "\ud800"}', r'{"\ud800": 1}', r'{"constraint": {"type": "keywords", "\ud800": 1}}'):
        reply = server.client.post("/generate", content=content, headers={"Content-Type": "application/json"})
        assert reply.status_code == 422
        error_of(reply)


@pytest.mark.parametrize("path", ["/nowhere", "/v1/nowhere", "/generate/", "/v1/models/x/y", "/%00", "/static/../etc"])
def test_unknown_paths(server, path):
    reply = server.client.get(path)
    assert reply.status_code == 404
    assert error_of(reply)["code"] == "not_found"


@pytest.mark.parametrize(("method", "path"), [("GET", "/generate"), ("PUT", "/v1/generate"), ("POST", "/v1/models")])
def test_wrong_methods(server, method, path):
    reply = server.client.request(method, path)
    assert reply.status_code == 405
    assert error_of(reply)["code"] == "method_not_allowed"
    assert reply.headers["allow"]


def test_a_large_body_is_refused_declared_or_not(server):
    large = json.dumps({"prompt": "a" * 1_100_000}).encode()

    def chunks():
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    for content in (large, chunks()):
        with httpx.Client(base_url=server.url, timeout=600) as client:
            try:
                reply = client.post("/generate", content=content, headers={"Content-Type": "application/json"})
            except httpx.WriteError:
                continue  # refused before all of it was sent
            assert reply.status_code == 413
            assert error_of(reply)["code"] == "body_too_large"
    assert server.client.get("/health/live").status_code == 200


def test_request_ids_come_back(server):
    reply = server.client.get("/health/live", headers={"X-Request-Id": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    replies = [server.client.get("/health/live", headers={"X-Request-Id": 'no "quotes"'}) for _ in range(2)]
    assert replies[0].headers["x-request-id"] != replies[1].headers["x-request-id"]
    assert '"' not in replies[0].headers["x-request-id"]


def test_a_deadline_ends_the_request(server):
    request = {"prompt": "a", "gen_length": 64, "steps": 4096, "deadline_s": 0.3, "policy": {"preset": "base"}}
    reply = server.client.post("/generate", json=request)
    assert reply.status_code == 504
    assert error_of(reply)["code"] == "deadline_exceeded"


def test_one_deadline_ends_all_samples(server):
    request = {"prompt": "a", "gen_length": 64, "steps": 4096, "deadline_s": 0.3, "n": 4, "policy": {"preset": "base"}}
    assert server.client.post("/generate", json=request).status_code == 504
    assert server.wait_idle()["astargate_requests_running"] == 0


MEANT = [
    ({"prompt": "a", "max_tokens": 8}, "max_tokens", "gen_length"),
    ({"prompt": "a", "gen_lenght": 8}, "gen_lenght", "gen_length"),
    ({"prompt": "a", "cfg_scale": 8}, "cfg_scale", "policy.guidance_scale"),
    ({"prompt": "a", "tail_width": 8}, "tail_width", "policy.tail_width"),
    (policy(presett="auto"), "policy.presett", "preset"),
    (policy(preset="hand_off"), "policy.preset", "handoff"),
    (policy(order="guidance_bost"), "policy.order", "guidance_boost"),
    (gate(source="drain"), "policy.gate.source", "drained"),
    (gate(source="fraction", fracton=0.3), "policy.gate.fracton", "fraction"),
    ({"prompt": "a", "policy": "hand_off"}, "policy", "handoff"),
    ({"constraint": {"type": "keyword"}}, "constraint.type", "keywords"),
    ({"constraint": {"type": "word_count", "min_word": 2}}, "constraint.min_word", "min_words"),
    (policy(gate="valu"), "policy.gate", "value"),
]


@pytest.mark.parametrize(("body", "param", "meant"), MEANT)
def test_a_misspelt_word_is_answered_with_what_was_meant(server, body, param, meant):
    error = error_of(server.client.post("/generate", json=body), 422)
    assert error["param"] == param
    assert f"did you mean '{meant}'?" in error["message"]


def test_each_route_names_its_own_fields(server):
    for path, said in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": []})):
        error = error_of(
            server.client.post(path, json={"model": "mini", **said, "gen_length": 8, "policy": "autoo"}), 422
        )
        assert "gen_length" in error["message"] or "policy" in error["message"]
    committor = {"constraint": KEYWORDS, "max_tokens": 8}
    assert "did you mean 'gen_length'?" in error_of(server.client.post("/committor", json=committor), 422)["message"]


def test_short_names_stand_for_objects(server):
    answer = server.client.post(
        "/generate", json={"prompt": "a", "policy": "handoff:0.5:k2", "gen_length": 4, "seed": 1}
    )
    policy = answer.json()["policy"]
    assert (policy["preset"], policy["tail_width"], policy["gate"]["fraction"]) == ("handoff", 2, 0.5)
    answer = server.client.post("/generate", json={"prompt": "a", "policy": {"gate": "fraction:0.5"}, "gen_length": 4})
    assert answer.json()["policy"]["gate"]["source"] == "fraction"
