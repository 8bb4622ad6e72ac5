"""Server-sent events hold what the plain answer holds."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.service.process import error_of

REQUEST = {
    "constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]},
    "policy": {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.3}},
    "gen_length": 16,
    "seed": 11,
    "n": 2,
}


def read(reply):
    """(event, data) pairs and the number of comments."""
    events, comments = [], 0
    for block in reply.read().decode().split("\n\n"):
        if block.startswith(":"):
            comments += 1
        elif block:
            name, data = block.split("\n")
            events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events, comments


def stream(server, request):
    with server.client.stream("POST", "/generate", json={**request, "stream": True}) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        return read(reply)


def test_the_stream_equals_the_plain_answer(server):
    events, _ = stream(server, REQUEST)
    plain = server.generate(REQUEST)
    name, done = events[-1]
    assert name == "done"
    same = {key: value for key, value in plain.items() if key not in {"id", "created"}}
    assert {key: done[key] for key in same} == same
    assert sorted((data for name, data in events if name == "sample"), key=lambda s: s["index"]) == plain["samples"]


@pytest.mark.parametrize("preset", ["full_cfg", "base", "parallel_tail"])
def test_steps_rebuild_the_canvas(server, preset):
    request = {**REQUEST, "policy": REQUEST["policy"] if preset == "parallel_tail" else {"preset": preset}}
    events, _ = stream(server, request)
    traces = [sample["trace"] for sample in server.generate({**request, "trace": True})["samples"]]
    for index, trace in enumerate(traces):
        steps = [data for name, data in events if name == "step" and data["index"] == index]
        assert [s["step"] for s in steps] == [s["step"] for s in trace["steps"]]
        canvas = {p: t for s in steps for p, t in zip(s["positions"], s["tokens"], strict=True)}
        assert [canvas[p] for p in range(16)] == trace["tokens"]
    handoffs = [data for name, data in events if name == "handoff"]
    assert [h["step"] for h in handoffs] == ([5, 5] if preset == "parallel_tail" else [])
    names = [name for name, data in events if data.get("index") == 0 and name != "done"]
    if preset == "parallel_tail":
        assert names == ["step"] * 5 + ["handoff"] + ["step"] * 2 + ["sample"]


def test_a_handoff_is_told_once_though_the_last_step_is_a_recheck(server):
    gate = {"source": "drained", "threshold": 0.9, "recheck": 2}
    request = {**REQUEST, "policy": {"preset": "handoff", "gate": gate}, "gen_length": 12, "n": 4}
    for seed in range(20):
        events, _ = stream(server, {**request, "seed": seed})
        samples = [[(name, data) for name, data in events if data.get("index") == index] for index in range(4)]
        rechecked = False
        for own in samples:
            handoffs = [data["step"] for name, data in own if name == "handoff"]
            assert handoffs == sorted(set(handoffs))
            assert own[-1][1]["gate"]["handoff_step"] == (handoffs[-1] if handoffs else None)
            last = [data for name, data in own if name == "step"][-1]
            rechecked |= bool(handoffs) and last["phase"] == "guided" and handoffs[-1] <= last["step"]
        if rechecked:
            return
    pytest.fail("no run ended in a re-check that found guidance undrained")


def test_a_deadline_is_an_event(server):
    events, _ = stream(server, {"prompt": "a", "gen_length": 64, "steps": 4096, "deadline_s": 3.0})
    name, body = events[-1]
    assert (name, body["error"]["code"]) == ("error", "deadline_exceeded")
    assert all(name == "step" for name, _ in events[:-1])


def test_a_refusal_is_a_plain_answer(server):
    for wrong in ({"gen_length": 2}, {"policy": {"preset": "fastest"}}, {"gen_length": 64, "block_length": 7}):
        reply = server.client.post("/generate", json={**REQUEST, **wrong, "stream": True})
        assert reply.status_code == 422
        error_of(reply)


def test_a_client_that_leaves_frees_its_rows(server):
    before = server.wait_idle()
    with httpx.Client(base_url=server.url, timeout=600) as client:
        request = {"prompt": "a", "gen_length": 64, "steps": 4096, "policy": {"preset": "base"}, "stream": True}
        with client.stream("POST", "/generate", json=request) as reply:
            assert next(chunk for chunk in reply.iter_text() if "event: step" in chunk)
    spent = server.wait_idle() - before
    assert 0 < spent["astargate_forward_rows_abandoned_total"] < 4096
    assert spent['astargate_requests_total{finish_reason="cancelled",policy="base",route="/generate"}'] == 1
