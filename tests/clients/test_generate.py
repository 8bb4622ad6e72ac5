"""The client against a real server: texts, streams, catalogue, errors."""

from __future__ import annotations

import asyncio

import pytest

from astargate_client import (
    AsyncClient,
    CanvasEvent,
    Client,
    DeadlineError,
    GenerateResponse,
    HandoffEvent,
    InvalidRequestError,
    NotFoundError,
    Sample,
    StepEvent,
    UnavailableError,
    UnknownEvent,
    fraction,
    full_cfg,
    handoff,
    keywords,
)
from astargate_client.events import EventReader
from astargate_client.wire import Sample as WireSample

ASKED = {"constraint": keywords("dog", "ball"), "gen_length": 12, "seed": 5, "n": 2}
POLICY = handoff(fraction(0.5), tail_width=4)


def test_generate_and_stream_agree(client):
    plain = client.generate("Write one sentence.", policy=POLICY, **ASKED)
    with client.stream("Write one sentence.", policy=POLICY, **ASKED) as events:
        seen = list(events)
        assert events.result().samples == plain.samples
        canvases = {index: canvas.pieces for index, canvas in events.canvases.items()}
    traced = client.generate("Write one sentence.", policy=POLICY, trace=True, **ASKED)
    assert canvases == {sample.index: sample.trace.pieces for sample in traced.samples}
    assert {type(event) for event in seen} == {StepEvent, HandoffEvent, Sample, GenerateResponse}
    assert [event.step for event in seen if isinstance(event, HandoffEvent)] == [6, 6]
    assert sorted(event.seed for event in seen if isinstance(event, Sample)) == [5, 6]
    assert isinstance(seen[-1], GenerateResponse)
    assert plain.text == plain.samples[0].text
    rows = plain.samples[0].forward_evaluations
    assert rows.saved_share == pytest.approx((24 - (2 * 6 + 2)) / 24)


def test_the_async_client_gives_the_same(server, client):
    async def ask():
        async with AsyncClient(server.url) as other:
            plain, health = await asyncio.gather(other.generate(policy=POLICY, **ASKED), other.health())
            async with other.stream(policy=POLICY, **ASKED) as events:
                names = [type(event).__name__ async for event in events]
                streamed = await events.result()
            asked = (other.models(), other.constraints(), other.policies(), other.gates())
            lists = await asyncio.gather(*asked, other.gate_audit("commongen-k3"))
            ready = await other.wait_until_ready(600)
            return plain, streamed, names, health, lists, ready

    plain, streamed, names, health, lists, ready = asyncio.run(ask())
    assert plain.samples == streamed.samples == client.generate(policy=POLICY, **ASKED).samples
    assert names[-1] == "GenerateResponse"
    assert health.status == ready.status == "ready"
    assert [len(page.data) > 0 for page in lists] == [True] * 5


def test_the_catalogue(client):
    assert client.health().model == client.models().data[0].id
    assert "commongen-k3" in client.constraints().families
    assert {"handoff", "full_cfg"} <= {preset.preset for preset in client.policies().data}
    assert client.gates().request_id
    audit = client.gate_audit("commongen-k3")
    assert (audit.family, audit.request_id is not None) == ("commongen-k3", True)
    assert {"constant"} <= {gate.source for gate in audit.data}
    with pytest.raises(NotFoundError, match="is no family"):
        client.gate_audit("no-such")


def test_a_refusal_names_the_field_and_the_request(client):
    with pytest.raises(InvalidRequestError) as caught:
        client.generate("a", policy=handoff(fraction(0.5), tail_width=99), gen_length=8)
    assert (caught.value.status, caught.value.param) == (422, "policy.tail_width")
    assert caught.value.request_id in str(caught.value)
    with pytest.raises(InvalidRequestError), client.stream("a", gen_length=8, policy={"tail_width": 99}):
        pytest.fail("no stream begins")
    with pytest.raises(InvalidRequestError) as caught:
        client.generate("a", extra_body={"colour": "red"})
    assert caught.value.param == "colour"
    with pytest.raises(TypeError, match="did you mean 'gen_length'"):
        client.generate("a", gen_lenght=8)


def test_deadlines_in_answers_and_in_streams(client):
    slow = {"gen_length": 64, "steps": 4096, "deadline_s": 3.0, "policy": full_cfg()}
    with pytest.raises(DeadlineError) as caught:
        client.generate("a", **slow)
    assert (caught.value.status, caught.value.code) == (504, "deadline_exceeded")
    with client.stream("a", **slow) as events, pytest.raises(DeadlineError) as caught:
        events.result()
    assert (caught.value.status, caught.value.code) == (None, "deadline_exceeded")
    assert caught.value.request_id == events.request_id


def test_leaving_a_stream_frees_its_rows(server, client):
    server.wait_idle()
    with client.stream("a", gen_length=64, steps=4096, policy={"preset": "base"}) as events:
        assert next(events).phase == "base"
    server.wait_idle()


def test_a_client_waits_for_a_server_that_starts(spawn):
    starting = spawn()
    with Client(starting.url) as c:
        assert c.wait_until_ready(600).status == "ready"
        with pytest.raises(InvalidRequestError):
            c.generate("")
    starting.stop()
    with Client(starting.url) as c, pytest.raises(Exception, match="cannot be reached"):
        c.wait_until_ready(0.5)


def test_unreadiness_is_told(spawn):
    starting = spawn()
    starting.wait_for(200, "/health/live")
    with Client(starting.url) as c:
        if starting.client.get("/health/ready").status_code == 503:  # almost always: loading takes seconds
            with pytest.raises(UnavailableError) as caught:
                c.health()
            assert caught.value.code == "not_ready"


def test_what_a_newer_server_may_send():
    reader = EventReader("req-1")
    lines = ["event: aurora", "id: 7", 'data: {"hue":', "data: 3}", "", ": keep-alive", ""]
    assert [event for line in lines if (event := reader.feed(line))] == [UnknownEvent("aurora", {"hue": 3})]
    known = {"index": 0, "seed": 1, "text": "a", "approximate": False, "finish_reason": "bored", "satisfied": None,
             "score": None, "checks": [], "mood": "fine",
             "forward_evaluations": dict.fromkeys(
                 ("conditional", "unconditional", "probe", "repair", "audit", "total", "full_cfg_equivalent", "saved",
                  "skipped_by_eos"), 0),
             "gate": {"source": "oracle", "decision": "handoff", **dict.fromkeys(
                 ("version", "predicted_horizon", "handoff_step", "handoff_fraction", "committed_fraction",
                  "handoff_fate", "fate_confidence", "fallback_reason", "nearest_regime"))}}  # fmt: skip
    sample = WireSample.model_validate(known)
    assert (sample.finish_reason, sample.gate.source, sample.mood) == ("bored", "oracle", "fine")
    with pytest.raises(ValueError, match="seed"):
        WireSample.model_validate({**known, "seed": "one"})


def test_a_template_is_filled_and_its_stream_shows_the_fixed_tokens(client):
    asked = {"template": "A dog [blank:3] the beach.", "seed": 5, "policy": handoff(fraction(0.5))}
    plain = client.generate("Write one sentence.", **asked)
    assert plain.text == f"A dog {plain.samples[0].blanks[0]} the beach."
    with client.stream("Write one sentence.", **asked) as events:
        first = next(events)
        assert isinstance(first, CanvasEvent)
        assert [piece is None for piece in events.canvases[0].pieces] == [
            at in first.positions for at in range(len(first.canvas))
        ]
        assert events.result().text == plain.text
    assert None not in events.canvases[0].pieces
