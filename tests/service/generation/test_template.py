"""Templates over HTTP: blanks filled on every route, what is refused, and what a measurement of one finds again."""

from __future__ import annotations

import json

import pytest

from tests.service.process import ROOT
from tests.service.test_streaming import stream

WORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}


def body(template, **fields):
    return {"prompt": "Write one sentence.", "template": template, "seed": 7, **fields}


def post(server, path, body):
    """The status and the answer of a request."""
    reply = server.client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    return reply.status_code, reply.json()


def test_blanks_are_filled_and_the_rest_stays(server):
    answer = server.generate(body("A DOG  [blank:3] the beach with [blank:2]!", constraint=WORDS, n=4))
    assert answer["steps"] == 5
    for sample in answer["samples"]:
        one, other = sample["blanks"]
        assert sample["text"] == f"A DOG  {one} the beach with {other}!"
        assert sample["forward_evaluations"]["full_cfg_equivalent"] == 10
        assert sample["forward_evaluations"]["total"] <= 10
        assert [check["name"] for check in sample["checks"]] == ["keyword: dog", "keyword: ball", "keyword: beach"]
        assert sample["checks"][0]["satisfied"]  # by the fixed text
    assert answer["usage"]["completion_tokens"] == 4 * 5


def test_a_free_canvas_has_no_blanks(server):
    assert (
        server.generate({"prompt": "Write one sentence.", "seed": 1, "gen_length": 8})["samples"][0]["blanks"] is None
    )


def test_each_sample_draws_its_own_length(server):
    asked = body("A dog [blank:1-6] the beach.", policy={"preset": "base"}, n=12)
    samples = server.generate(asked)["samples"]
    assert len({sample["forward_evaluations"]["total"] for sample in samples}) > 2
    alone = server.generate({**asked, "n": 1, "seed": samples[5]["seed"]})["samples"][0]
    assert (alone["text"], alone["forward_evaluations"]) == (samples[5]["text"], samples[5]["forward_evaluations"])


@pytest.mark.parametrize("preset", ["base", "full_cfg", "handoff", "parallel_tail", "reopen_repair", "auto"])
def test_every_preset_fills_blanks(server, preset):
    answer = server.generate(body("The [blank:2-9] ball.", constraint=WORDS, policy={"preset": preset}, n=3))
    for sample in answer["samples"]:
        assert sample["text"].startswith("The ")
        assert sample["text"].endswith(" ball.")
        for attempted in sample["repair"]["passes"] if sample["repair"] else ():
            assert attempted["text"].startswith("The ")
            assert attempted["text"].endswith(" ball.")


def test_a_stream_begins_with_the_canvas(server):
    asked = body("A dog [blank:3] the beach.")
    events, _ = stream(server, asked)
    names = [name for name, _ in events]
    assert names[0] == "canvas"
    canvas = events[0][1]
    tokens = list(canvas["canvas"])
    for name, data in events:
        if name == "step":
            assert set(data["positions"]) <= set(canvas["positions"])
            for position, token in zip(data["positions"], data["tokens"], strict=True):
                tokens[position] = token
    assert canvas["canvas"][canvas["positions"][0]] not in tokens
    assert events[-1][1]["samples"] == server.generate(asked)["samples"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template": "A dog."}, "template"),
        ({"template": "A [blank:4-2]."}, "template"),
        ({"template": "A [blank:9999]."}, "template"),
        ({"template": "[blank:2-65]"}, "template"),
        ({"template": "A \ud800 [blank:2]."}, "template"),
        ({"template": "[blank:2]", "gen_length": 4}, "gen_length"),
        ({"template": "[blank:2]", "block_length": 1}, "block_length"),
        ({"template": "[blank:2]", "eos_fill": True}, "eos_fill"),
        ({"template": "[blank:2]", "defer_eos": True}, "defer_eos"),
        ({"template": "A [blank:1].", "constraint": WORDS}, "template"),
        ({"template": "[blank:2-3]", "constraint": WORDS, "prompt": "", "policy": {"gate": {"source": "recorded"}}},
         "template"),
        ({"template": "[blank:3]", "policy": {"preset": "parallel_tail", "tail_width": 4,
                                              "gate": {"source": "fraction", "fraction": 0.5}}}, "policy.tail_width"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_its_name(server, fields, param):
    status, answer = post(server, "/generate", {"prompt": "Write.", **fields})
    assert status == 422
    assert answer["error"]["param"] == param


def test_a_suffix_is_what_follows_the_text(server):
    asked = {"model": "mini", "prompt": "Write one sentence.", "suffix": " on the beach.", "max_tokens": 5, "seed": 3}
    status, answer = post(server, "/v1/completions", asked)
    assert status == 200
    (choice,) = answer["choices"]
    whole = server.generate(body("[blank:5] on the beach.", seed=3))["samples"][0]
    assert choice["text"] == whole["blanks"][0]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 5
    reply = server.client.post("/v1/completions", json={**asked, "stream": True})
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == choice["text"]


def test_a_suffix_that_does_not_fit_is_refused_by_its_name(server):
    status, answer = post(
        server, "/v1/completions", {"model": "mini", "prompt": "Write.", "suffix": " and a dog" * 30, "max_tokens": 5}
    )
    assert (status, answer["error"]["param"]) == (422, "suffix")


def test_a_measured_horizon_is_found_for_its_template_alone(server):
    fields = {"prompt": "", "constraint": WORDS, "seed": 5}
    template = "A dog [blank:5] beach."
    status, job = post(server, "/committor", {**fields, "template": template, "horizon": True, "rollouts": 3})
    assert status == 200, job
    points = job["result"]["points"]
    assert points[0]["masked"] == 5
    assert points[0]["committed_fraction"] == 0.0
    policy = {"preset": "handoff", "gate": {"source": "recorded"}}
    gate = server.generate({**fields, "template": template, "policy": policy})["samples"][0]["gate"]
    assert gate["evidence"] == "audited" or gate["decision"] == "full_cfg"
    assert gate["fallback_reason"] is None
    for other in ("A dog [blank:4] beach.", "The dog [blank:5] beach."):
        gate = server.generate({**fields, "template": other, "policy": policy})["samples"][0]["gate"]
        assert "no horizon is recorded" in gate["fallback_reason"]


def test_a_committor_wants_one_length_and_no_other_state(server):
    asked = {"prompt": "", "constraint": WORDS, "rollouts": 2, "seed": 1}
    for fields in (
        {"template": "A [blank:2-5].", "horizon": True},
        {"template": "A [blank:5].", "state": {"text": "a dog [MASK] [MASK]"}},
    ):
        status, answer = post(server, "/committor", {**asked, **fields})
        assert (status, answer["error"]["param"]) == (422, "template")


def test_what_the_fixed_text_holds_needs_no_room(server):
    sample = server.generate(body("A dog, a ball, the [blank:1].", constraint=WORDS, policy={"preset": "auto"}))
    assert sample["samples"][0]["checks"][1]["satisfied"]
    status, answer = post(server, "/generate", body("A dog, the [blank:1].", constraint=WORDS))
    assert (status, answer["error"]["code"]) == (422, "canvas_too_short")


def test_the_page_shows_what_the_server_answers(server):
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if "`" in line and line.startswith("| ")]
    assert len(rows) == 10
    policy = {"preset": "handoff", "gate": {"source": "drained"}, "order": "conditional"}
    for prompt, template, text, spent in rows:
        asked = {"prompt": prompt, "template": template.strip("`"), "seed": 7, "temperature": 0.6, "policy": policy}
        sample = server.generate(asked)["samples"][0]
        assert sample["text"] == text
        ledger = sample["forward_evaluations"]
        assert spent == f"{ledger['total']} of {ledger['full_cfg_equivalent']}"
