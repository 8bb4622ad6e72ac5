"""OpenAI's own client against a real server: texts, streams, usage, errors; and no field that is silently ignored."""

from __future__ import annotations

import openai
import pytest
from pydantic import BaseModel

from decoding.sampling.block_schedule import moving_block
from service.schemas import openai as wire
from tests.service.process import error_of

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball"]}
EXTRA = {"constraint": KEYWORDS, "policy": {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.3}}}
COMMON = {"model": "mini", "max_tokens": 16, "seed": 3, "extra_body": EXTRA}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Write one sentence."}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", timeout=600, max_retries=0) as client:
        yield client


def test_a_completion(server, client):
    answer = client.completions.create(prompt="Write one sentence.", n=2, **COMMON)
    assert (answer.object, answer.model) == ("text_completion", "mini")
    same = server.generate({**EXTRA, "prompt": "Write one sentence.", "gen_length": 16, "seed": 3, "n": 2})  # fmt: skip
    assert [choice.text for choice in answer.choices] == [sample["text"] for sample in same["samples"]]
    for choice, sample in zip(answer.choices, same["samples"], strict=True):
        assert choice.finish_reason == sample["finish_reason"]
        assert {name: sample[name] for name in choice.astargate} == choice.astargate
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.model_extra["forward_evaluations"] == same["usage"]["forward_evaluations"]
    assert answer.system_fingerprint == same["model_hash"]


def test_a_chat_completion(server, client):
    answer = client.chat.completions.create(messages=MESSAGES, **COMMON)
    assert answer.object == "chat.completion"
    message = answer.choices[0].message
    assert (message.role, message.refusal) == ("assistant", None)
    # mini knows no roles: its turns are one text.
    same = server.generate({**EXTRA, "prompt": "Be brief.\nWrite one sentence.", "gen_length": 16, "seed": 3})  # fmt: skip  # noqa: E501
    assert message.content == same["samples"][0]["text"]
    assert answer.usage.prompt_tokens == same["usage"]["prompt_tokens"]


@pytest.mark.parametrize("policy", [{"preset": "full_cfg"}, {"preset": "base", "tail_width": 4}, EXTRA["policy"]])
@pytest.mark.parametrize("chat", [False, True])
def test_the_joined_stream_is_the_text_in_its_blocks(client, policy, chat):
    create = client.chat.completions.create if chat else client.completions.create
    asked = {"messages": MESSAGES} if chat else {"prompt": "Write one sentence."}
    options = {**COMMON, **asked, "n": 2, "max_tokens": 32, "extra_body": {**EXTRA, "policy": policy}}
    in_blocks = {**options["extra_body"], "block_length": 8}
    plain = create(**{**options, "extra_body": in_blocks})
    texts, reasons, usage, pieces = ["", ""], [None, None], None, 0
    for chunk in create(**options, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == ("chat.completion.chunk" if chat else "text_completion")
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text = choice.delta.content if chat else choice.text
            pieces += bool(text)
            assert reasons[choice.index] is None, "nothing follows the last chunk"
            texts[choice.index] += text or ""
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.message.content if chat else choice.text for choice in plain.choices]
    assert reasons == [choice.finish_reason for choice in plain.choices]
    assert usage == plain.usage
    assert pieces > 2, "text comes in pieces"


def test_a_mended_text_is_sent_once_it_stands(client):
    policy = {"preset": "base", "tail_width": 8, "tail_mend": 3}
    options = {**COMMON, "prompt": "Write one sentence.", "max_tokens": 32,
               "extra_body": {**EXTRA, "policy": policy, "block_length": 8}}  # fmt: skip
    (text,) = [choice.text for choice in client.completions.create(**options).choices]
    pieces = [c.text for chunk in client.completions.create(**options, stream=True) for c in chunk.choices if c.text]
    assert pieces == [text]


def test_only_a_stream_is_cut_into_blocks(client):
    """The whole text at once is decoded as `/generate` decodes it; blocks are for those who watch."""
    asked = {"prompt": "Write one sentence.", **COMMON}
    assert client.completions.create(**asked).block_length is None
    assert client.completions.create(**{**asked, "extra_body": {**EXTRA, "block_length": 4}}).block_length == 4
    *_, last = client.completions.create(**asked, stream=True)
    assert last.choices[0].finish_reason


def test_without_a_policy_requests_save_and_say_on_what_evidence(client):
    for asked in ({}, {"stream": True}, {"temperature": 0}):
        answer = client.completions.create(
            model="mini", prompt="Write one sentence about a dog.", max_tokens=24, seed=1, **asked
        )
        told = list(answer)[-1].choices[0] if "stream" in asked else answer.choices[0]
        details = told.model_extra["astargate"]
        assert details["gate"]["source"] == "drained"
        assert details["gate"]["evidence"] == "pooled"
        assert details["gate"]["measured_loss"]["pairs"] > 100
        assert details["forward_evaluations"]["saved"] >= 0.15 * 48


def test_models(server, client):
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("mini", "model", "astargate")
    assert model.created > 1_600_000_000
    assert client.models.retrieve("mini") == client.models.retrieve(model.hash) == model
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-4o")
    assert refused.value.code == "model_not_found"


def test_errors_are_the_client_s_own(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="gpt-4o", prompt="a")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.UnprocessableEntityError) as wrong:
        client.completions.create(model="mini", prompt="a", max_tokens=4000)
    assert wrong.value.param == "max_tokens"
    assert "gen_length" not in str(wrong.value)
    assert wrong.value.request_id
    with pytest.raises(openai.APIError) as late:
        list(client.completions.create(model="mini", prompt="a", max_tokens=64, stream=True,
                                       extra_body={"steps": 4096, "deadline_s": 0.5}))  # fmt: skip
    assert late.value.code == "deadline_exceeded"


def unsupported(model: type[BaseModel]) -> list[str]:
    """Fields whose schema is a list of neutral values."""
    return [name for name, field in model.model_json_schema()["properties"].items() if None in field.get("enum", [])]


def test_what_openai_has_and_this_server_has_not_is_refused_by_name(server):
    for path, model, asked in (("/v1/completions", wire.CompletionRequest, {"prompt": "a"}),
                               ("/v1/chat/completions", wire.ChatRequest, {"messages": MESSAGES})):  # fmt: skip
        names = unsupported(model)
        assert {"echo", "presence_penalty", "logit_bias", "repetition_penalty", "store"} <= set(names)
        neutral = {}
        for name in names:
            reply = server.client.post(path, json={"model": "mini", **asked, name: ["x"]})
            assert reply.status_code == 422, name
            assert (error_of(reply)["param"], error_of(reply)["code"]) == (name, "not_supported")
            neutral[name] = model.model_json_schema()["properties"][name]["enum"][-1]
        reply = server.client.post(path, json={"model": "mini", **asked, **neutral, "max_tokens": 4})
        assert reply.status_code == 200, reply.text


def test_every_parameter_of_the_client_is_known(server):
    """What openai's client can send is served or refused as unsupported; it is never unknown."""
    for create, model in ((openai.resources.Completions.create, wire.CompletionRequest),
                          (openai.resources.chat.Completions.create, wire.ChatRequest)):  # fmt: skip
        sent = {name for name in create.__wrapped__.__annotations__ if not name.startswith("extra_")}
        assert sent - {"timeout", "return"} - set(model.model_fields) <= {"prompt_cache_retention", "prompt_cache_options", "moderation"}  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": [1, 2]}, "prompt"),
        ("completions", {"prompt": ""}, "prompt"),
        ("completions", {"prompt": "a", "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ("completions", {"prompt": "a", "colour": 1}, "colour"),
        ("completions", {"prompt": "a", "temperature": "hot"}, "temperature"),
        ("completions", {"prompt": "a", "render_constraint": True}, "render_constraint"),
        ("completions", {"prompt": "a", "policy": {"preset": "base", "guidance_scale": 2}}, "policy.guidance_scale"),
        ("completions", {"prompt": "a", "constraint": {"type": "rhyme"}}, "constraint.type"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": [{"role": "assistant", "content": "a"}]}, "messages"),
        ("chat/completions", {"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ("chat/completions", {"messages": [{"role": "user", "content": "dog " * 3000}]}, "messages"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content"),
        ("chat/completions", {"messages": MESSAGES, "max_tokens": 4, "max_completion_tokens": 5},
         "max_completion_tokens"),
        ("chat/completions", {"messages": MESSAGES, "max_completion_tokens": 4000}, "max_completion_tokens"),
    ],
)  # fmt: skip
def test_wrong_requests(server, path, body, param):
    for stream in (False, True):
        reply = server.client.post(f"/v1/{path}", json={"model": "mini", "stream": stream, **body})
        assert reply.status_code == 422, reply.text
        assert error_of(reply)["param"] == param


def test_stream_options_need_a_stream(server):
    body = {"model": "mini", "prompt": "a", "stream_options": {"include_usage": True}}
    assert error_of(server.client.post("/v1/completions", json=body))["param"] == "stream_options"


def test_content_may_come_in_parts(server):
    parts = [{"type": "text", "text": "Write one"}, {"type": "text", "text": "sentence."}]
    body = {"model": "mini", "max_tokens": 8, "seed": 1}
    answers = [
        server.client.post("/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": content}]})
        for content in (parts, "Write one\nsentence.")
    ]
    assert answers[0].json()["choices"] == answers[1].json()["choices"]


def test_a_client_that_leaves_frees_its_rows(server, client):
    before = server.wait_idle()
    with client.completions.create(model="mini", prompt="a", max_tokens=64, stream=True, extra_body={"steps": 4096}):
        server.wait_running()
    spent = server.wait_idle() - before
    key = 'astargate_requests_total{finish_reason="cancelled",policy="handoff",route="/v1/completions"}'
    assert spent[key] == 1


@pytest.mark.parametrize(
    ("canvas", "steps", "block"), [(16, 16, 8), (32, 32, 8), (20, 20, 5), (13, 13, None), (1, 1, None), (16, 15, None)]
)
def test_blocks_that_let_a_stream_move(canvas, steps, block):
    assert moving_block(canvas, steps) == block
