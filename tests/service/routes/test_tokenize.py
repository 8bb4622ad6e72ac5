"""POST /tokenize and /detokenize: the model's own tokens, there and back."""

from __future__ import annotations

import pytest

from tests.service.process import error_of
from tests.shipped import mini

TEXT = "A dog catches the ball on the beach."


def post(server, path, **body):
    return server.client.post(path, json=body)


@pytest.mark.parametrize("version", ["", "/v1"])
def test_a_text_goes_there_and_back(server, version):
    tokens = post(server, f"{version}/tokenize", prompt=TEXT).json()
    assert tokens["tokens"] == mini().codec.encode(TEXT)
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["pieces"])
    assert tokens["max_prompt"] == mini().spec.max_prompt
    assert post(server, f"{version}/detokenize", tokens=tokens["tokens"]).json() == {"prompt": TEXT}


def test_a_prompt_can_be_counted_as_it_is_sent_to_the_model(server):
    templated = post(server, "/tokenize", prompt=TEXT, template=True).json()
    assert templated["tokens"] == mini().codec.encode_prompt(TEXT)
    answer = server.generate({"prompt": TEXT, "gen_length": 4, "seed": 1})
    assert answer["usage"]["prompt_tokens"] == templated["count"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 422, "prompt"),
        ("/tokenize", {"text": "a"}, 422, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "gpt"}, 404, "model"),
        ("/detokenize", {"tokens": [-1]}, 422, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, 422, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, 422, "tokens[0]"),
    ],
)
def test_what_cannot_be_is_refused(server, path, body, status, param):
    assert error_of(post(server, path, **body), status)["param"] == param
