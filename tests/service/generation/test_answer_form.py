"""How much an answer says: brief or full, with nulls or without; and whose model it is."""

from __future__ import annotations

import json
from itertools import pairwise

from tests.service.process import error_of

BODY = {"prompt": "Write one sentence.", "seed": 7, "n": 2, "gen_length": 8}


def post(server, **fields):
    return server.client.post("/generate", json={**BODY, **fields})


def test_a_brief_answer_holds_what_the_full_one_says(server):
    full, brief = post(server).json(), post(server, detail="brief")
    assert brief.json()["samples"] == [
        {
            "text": sample["text"],
            "satisfied": sample["satisfied"],
            "rows": sample["forward_evaluations"]["total"],
            "handoff": sample["gate"]["handoff_step"],
            "seed": sample["seed"],
        }
        for sample in full["samples"]
    ]
    assert brief.json().keys() == {"id", "model", "samples"}
    assert len(brief.content) < 600


def test_nulls_are_left_out_and_nothing_else(server):
    full, short = post(server).json(), post(server, nulls=False)
    assert b"null" not in short.content
    unlike = {"id", "created"}
    assert {name: value for name, value in short.json().items() if name not in unlike} == {
        name: value for name, value in without_nulls(full).items() if name not in unlike
    }


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def test_the_events_of_a_stream_are_as_brief(server):
    lines = post(server, stream=True, detail="brief", n=1).text.splitlines()
    told = {  # a keep-alive may stand between events
        event: json.loads(data.removeprefix("data: ")) for event, data in pairwise(lines) if event.startswith("event: ")
    }
    assert told["event: sample"].keys() == {"text", "satisfied", "rows", "handoff", "seed"}
    assert told["event: done"]["samples"] == [told["event: sample"]]
    assert "event: step" in told


def test_the_served_model_may_be_named_and_no_other(server):
    served = server.client.get("/v1/models").json()["data"][0]
    for name in (served["id"], served["hash"], None):
        assert post(server, model=name).status_code == 200
    error = error_of(post(server, model="gpt"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "it serves 'mini'" in error["message"]
