"""What tools send that were written for other servers: neutral values, lists of prompts, stop strings, and the like."""

from __future__ import annotations

import math

import openai
import pytest

from service.schemas.openai import ChatRequest, CompletionRequest
from tests.service.process import error_of

PROMPTS = ["Write one sentence about a dog.", "Write one sentence about a boat and a river."]
MESSAGES = [{"role": "user", "content": PROMPTS[0]}]
COMMON = {"model": "mini", "max_tokens": 24, "seed": 5}
ASKED = {"/v1/completions": {"prompt": PROMPTS[0]}, "/v1/chat/completions": {"messages": MESSAGES}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", timeout=600, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def whole(client):
    """A text that no stop string cuts."""
    return client.completions.create(prompt=PROMPTS[0], **COMMON)


def texts(answer):
    return [choice.text for choice in answer.choices]


def streamed(client, **options):
    """The joined text of each choice, their reasons, the usages of the chunks and the log probabilities."""
    joined, reasons, usages, logprobs = {}, {}, [], {}
    for chunk in client.completions.create(stream=True, **options):
        usages.append(chunk.usage)
        for choice in chunk.choices:
            joined[choice.index] = joined.get(choice.index, "") + choice.text
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
            logprobs[choice.index] = choice.logprobs or logprobs.get(choice.index)
    return joined, reasons, usages, logprobs


# -- stop -


@pytest.mark.parametrize("several", [False, True])
def test_a_text_ends_before_a_stop_string_and_its_usage_with_it(client, whole, several):
    (text,) = texts(whole)
    word = text.split()[3]
    stop = ["never there", word] if several else word
    cut = client.completions.create(prompt=PROMPTS[0], stop=stop, **COMMON)
    assert texts(cut) == [text[: text.index(word)]]
    assert cut.choices[0].finish_reason == "stop"
    assert 0 < cut.usage.completion_tokens < whole.usage.completion_tokens
    assert cut.usage.total_tokens == cut.usage.prompt_tokens + cut.usage.completion_tokens
    spent = [answer.usage.model_extra["forward_evaluations"] for answer in (cut, whole)]
    assert spent[0] == spent[1]  # the canvas is decoded whole


def test_a_stop_string_that_is_not_there_changes_nothing(client, whole):
    same = client.completions.create(prompt=PROMPTS[0], stop=["\n\n\n"], **COMMON)
    assert (same.choices, same.usage) == (whole.choices, whole.usage)


def test_a_stream_ends_before_it_too(client):
    blocks = {**COMMON, "prompt": PROMPTS[0], "n": 2, "extra_body": {"block_length": 8}}
    text = texts(client.completions.create(**blocks))[0]
    for stop in (text[len(text) // 2 :][:3], text[1], text[-4:]):
        plain = client.completions.create(**blocks, stop=[stop])
        joined, reasons, usages, _ = streamed(client, **blocks, stop=[stop], stream_options={"include_usage": True})
        assert [joined.get(index, "") for index in (0, 1)] == texts(plain)
        assert [reasons[index] for index in (0, 1)] == [choice.finish_reason for choice in plain.choices]
        assert usages[-1] == plain.usage


def test_the_verdict_is_of_the_text_that_is_left(client):
    """A text that is cut before its only word cannot hold a second one."""
    constraint = {"type": "word_count", "min_words": 2, "max_words": 40}
    asked = {**COMMON, "prompt": PROMPTS[0], "extra_body": {"constraint": constraint, "policy": {"preset": "base"}}}
    text = texts(client.completions.create(**asked))[0]
    cut = client.completions.create(**asked, stop=[" "])
    assert texts(cut) == [text.split(" ")[0]]
    assert cut.choices[0].astargate["satisfied"] is False


@pytest.mark.parametrize("stop", ["", [""], ["x"] * 65, [1], 1])
def test_what_is_no_stop_string_is_refused(server, stop):
    reply = server.client.post("/v1/completions", json={**COMMON, "prompt": "a", "stop": stop})
    assert reply.status_code == 422
    assert error_of(reply)["param"].startswith("stop")


# -- log probabilities -


def test_log_probabilities_are_those_of_the_committing_steps(server, client):
    """The same canvas with its trace has each token's probability in its step."""
    answer = client.completions.create(prompt=PROMPTS[0], logprobs=1, **COMMON)
    logprobs, text = answer.choices[0].logprobs, answer.choices[0].text
    asked = {"prompt": PROMPTS[0], "gen_length": 24, "seed": 5, "trace": True}
    trace = server.generate(asked)["samples"][0]["trace"]
    steps = [zip(step["positions"], step["confidence"], strict=True) for step in trace["steps"]]
    probability = {position: value for step in steps for position, value in step}
    count = answer.usage.completion_tokens
    assert logprobs.tokens == trace["pieces"][:count]
    expected = [math.log(probability[position]) for position in range(count)]
    assert logprobs.token_logprobs == pytest.approx(expected, abs=1e-6)
    assert logprobs.top_logprobs == [{t: p} for t, p in zip(logprobs.tokens, logprobs.token_logprobs, strict=True)]
    assert logprobs.text_offset[0] == 0
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    assert logprobs.text_offset[-1] < len(text)


def test_chat_has_them_in_its_own_shape(client):
    asked = {**COMMON, "messages": MESSAGES, "logprobs": True}
    plain = client.chat.completions.create(**asked)
    entries = plain.choices[0].logprobs.content
    assert len(entries) == plain.usage.completion_tokens
    assert all(entry.logprob <= 0 and entry.top_logprobs == [] for entry in entries)
    with_top = client.chat.completions.create(**asked, top_logprobs=5).choices[0].logprobs.content
    assert [[(top.token, top.logprob) for top in entry.top_logprobs] for entry in with_top] == [
        [(entry.token, entry.logprob)] for entry in entries
    ]
    assert bytes(entries[0].bytes).decode() == entries[0].token


def test_a_stream_has_them_with_its_last_chunk_and_a_stop_string_cuts_them(client):
    blocks = {**COMMON, "prompt": PROMPTS[0], "logprobs": 0, "extra_body": {"block_length": 8}}
    text = texts(client.completions.create(**blocks))[0]
    plain = client.completions.create(**blocks, stop=[text.split()[4]])
    _, _, _, logprobs = streamed(client, **blocks, stop=[text.split()[4]])
    assert logprobs[0] == plain.choices[0].logprobs
    assert len(logprobs[0].tokens) == plain.usage.completion_tokens
    assert logprobs[0].top_logprobs is None


@pytest.mark.parametrize(
    "policy",
    [{"preset": "auto"}, {"preset": "reopen_repair"}, {"preset": "base", "tail_width": 4, "tail_mend": 2}],
    ids=["auto", "repaired", "mended"],
)
def test_a_text_that_may_be_written_anew_has_none(server, policy):
    body = {**COMMON, "prompt": "a", "logprobs": 1, "policy": policy}
    body["constraint"] = {"type": "keywords", "keywords": ["dog"]}
    error = error_of(server.client.post("/v1/completions", json=body))
    assert (error["param"], "written twice" in error["message"]) == ("logprobs", True)


@pytest.mark.parametrize("asked", [{"logprobs": 1}, {"stop": ["."]}])
def test_a_text_before_a_suffix_has_neither(server, asked):
    body = {**COMMON, "prompt": "a", "suffix": " on a beach.", **asked}
    assert error_of(server.client.post("/v1/completions", json=body))["param"] in asked


def test_alternatives_need_log_probabilities(server):
    body = {**COMMON, "messages": MESSAGES, "top_logprobs": 2}
    assert error_of(server.client.post("/v1/chat/completions", json=body))["param"] == "top_logprobs"


# -- lists of prompts -


def test_prompts_are_answered_in_their_order(client):
    """Choice i has the seed seed + i, so that each is the answer to a request of its own."""
    together = client.completions.create(prompt=PROMPTS, n=2, **COMMON)
    apart = [
        client.completions.create(prompt=prompt, n=2, **{**COMMON, "seed": COMMON["seed"] + 2 * index})
        for index, prompt in enumerate(PROMPTS)
    ]
    assert texts(together) == [text for answer in apart for text in texts(answer)]
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(together.usage, field) == sum(getattr(answer.usage, field) for answer in apart), field


def test_a_stream_of_several_prompts(client):
    asked = {**COMMON, "prompt": PROMPTS, "extra_body": {"block_length": 8}}
    joined, _, usages, _ = streamed(client, **asked, stream_options={"include_usage": True})
    plain = client.completions.create(**asked)
    assert [joined[index] for index in (0, 1)] == texts(plain)
    assert usages[-1] == plain.usage


def test_a_list_of_one_is_that_prompt(client, whole):
    assert texts(client.completions.create(prompt=PROMPTS[:1], **COMMON)) == texts(whole)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": [1, 2]}, "token ids"),
        ({"prompt": [[1, 2]]}, "token ids"),
        ({"prompt": []}, "at least 1"),
        ({"prompt": ["a"] * 65}, "65 of them"),
        ({"prompt": ["a", "b"], "policy": {"gate": {"source": "recorded"}}}, "one string"),
    ],
)
def test_prompts_that_are_refused(server, change, said):
    error = error_of(server.client.post("/v1/completions", json={**COMMON, **change}))
    assert error["param"] == "prompt"
    assert said in error["message"]


# -- names and neutral values -

NEUTRAL = {
    "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0, "logit_bias": {}, "ignore_eos": False,
    "top_k": -1, "min_p": 0.0, "min_tokens": 0, "length_penalty": 1.0, "use_beam_search": False, "best_of": 1,
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "include_stop_str_in_output": False,
    "stop_token_ids": [], "echo": False, "store": False, "user": "someone", "metadata": {"run": "1"},
    "safety_identifier": "x", "prompt_cache_key": "y", "stop": [],
}  # fmt: skip
CHANGING = {
    "repetition_penalty": 1.2, "frequency_penalty": 0.5, "presence_penalty": -1, "logit_bias": {"1": 5}, "top_k": 40,
    "min_p": 0.1, "min_tokens": 3, "length_penalty": 0.5, "use_beam_search": True, "best_of": 2, "echo": True,
    "skip_special_tokens": False, "include_stop_str_in_output": True, "stop_token_ids": [1], "store": True,
}  # fmt: skip


@pytest.mark.parametrize("path", ASKED)
def test_values_that_ask_for_nothing_are_taken(server, path):
    body = {**COMMON, **ASKED[path]}
    plain, other = (server.client.post(path, json=sent) for sent in (body, {**body, **NEUTRAL}))
    assert other.status_code == 200, other.text
    assert other.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("name", CHANGING)
def test_values_that_would_change_the_text_are_refused_by_name(server, path, name):
    reply = server.client.post(path, json={**COMMON, **ASKED[path], name: CHANGING[name]})
    assert reply.status_code == 422
    assert (error_of(reply)["param"], error_of(reply)["code"]) == (name, "not_supported")


def test_tools_that_may_not_be_called_are_none(server):
    neutral = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}}
    reply = server.client.post("/v1/chat/completions", json={**COMMON, "messages": MESSAGES, **neutral})
    assert reply.status_code == 200, reply.text


def test_ignore_eos_is_suppress_eos(server):
    body = {**COMMON, "prompt": PROMPTS[0]}
    answers = [server.client.post("/v1/completions", json={**body, name: True}).json()
               for name in ("ignore_eos", "suppress_eos")]  # fmt: skip
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"]["completion_tokens"] == 24
    both = server.client.post("/v1/completions", json={**body, "ignore_eos": True, "suppress_eos": False})
    assert error_of(both)["param"] == "ignore_eos"


def test_a_length_by_both_names(server):
    body = {**COMMON, "messages": MESSAGES, "max_completion_tokens": 24}
    assert server.client.post("/v1/chat/completions", json=body).status_code == 200
    other = server.client.post("/v1/chat/completions", json={**body, "max_completion_tokens": 23})
    assert error_of(other)["param"] == "max_completion_tokens"


def test_usage_in_every_chunk(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**COMMON, "prompt": PROMPTS[0], "stream_options": options}
    _, _, usages, _ = streamed(client, **asked)
    counts = [usage.completion_tokens for usage in usages]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    assert counts[-2] == counts[-1]  # the last chunk of text, and the chunk of usage alone
    assert all(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens for usage in usages)


# -- lengths above the model's -


def test_a_length_above_the_model_s_is_an_error_unless_the_server_is_lenient(server, spawn):
    asked = {"model": "mini", "seed": 1, "policy": {"preset": "base"}, "max_tokens": 5000}
    for path, prompt in ASKED.items():
        assert error_of(server.client.post(path, json={**asked, **prompt}))["param"] == "max_tokens"
    lenient = spawn("--lenient").wait_for(200)
    (model,) = lenient.client.get("/v1/models").json()["data"]
    longest = model["limits"]["max_canvas"]
    for path, prompt in ASKED.items():
        answer = lenient.client.post(path, json={**asked, **prompt, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["finish_reason"] == "length"
        assert answer.json()["usage"]["completion_tokens"] == longest


@pytest.mark.parametrize("kind", [CompletionRequest, ChatRequest])
def test_null_is_never_more_than_a_field_left_out(server, kind):
    """Clients that serialise every field send null for those that nobody set."""
    path = "completions" if kind is CompletionRequest else "chat/completions"
    text = {"prompt": "Write."} if kind is CompletionRequest else {"messages": [{"role": "user", "content": "Write."}]}
    for name in kind.model_fields.keys() - {"model", *text}:
        reply = server.client.post(f"/v1/{path}", json={"model": "mini", "max_tokens": 4, **text, name: None})
        assert reply.status_code in {200, 422}, name
        assert reply.status_code == 200 or error_of(reply)["param"] == name
