"""Requests that HTTP allows and few send: HEAD, compressed bodies, values without end."""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from base64 import b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from service.http.body import MAX_KEYS, check_values
from service.http.errors import ApiError
from tests.service.process import error_of

SMALL = {"prompt": "a", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
GZIPPED = gzip.compress(b"{}", mtime=0)
MOST_SECONDS = 0.35
"""Of the processor for one refusal; it was up to 2 s."""


def post(server, content, path="/generate", **headers):
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return server.client.post(path, content=content, headers=given)


def test_every_get_route_answers_head(server):
    document = server.client.get("/openapi.json").json()
    paths = [path for path, operations in document["paths"].items() if "get" in operations and "{" not in path]
    for path in (*paths, "/", "/docs", "/openapi.json", "/health", "/healthz", "/playground/icon.svg", "/committor/x"):
        got, headed = server.client.get(path), server.client.head(path)
        assert headed.status_code == got.status_code, path
        assert headed.content == b""
        assert headed.headers["content-type"] == got.headers["content-type"]
        if path != "/metrics":
            assert headed.headers["content-length"] == got.headers["content-length"]
    assert server.client.head("/generate").status_code == 405
    assert server.client.head("/nowhere").status_code == 404


def test_other_names_of_health(server):
    assert server.client.get("/health").json() == server.client.get("/health/ready").json()
    assert server.client.get("/healthz").json() == server.client.get("/health/live").json()


def test_a_gzip_body_is_read(server):
    assert post(server, gzip.compress(json.dumps(SMALL).encode()), Content_Encoding="gzip").status_code == 200
    assert post(server, json.dumps(SMALL).encode(), Content_Encoding="identity").status_code == 200
    parts = gzip.compress(json.dumps(SMALL).encode())
    reply = post(server, iter([parts[:9], parts[9:12], parts[12:]]), Content_Encoding="x-gzip")
    assert reply.status_code == 200


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "x" * 300])
def test_another_encoding_is_named(server, encoding):
    reply = post(server, zlib.compress(b"{}"), Content_Encoding=encoding)
    assert reply.status_code == 415
    assert encoding[:40] in error_of(reply)["message"]
    assert reply.headers["accept-encoding"] == "gzip"


def test_a_bomb_is_too_large(server):
    content = gzip.compress(b" " * (600 << 20), 1)[: 900 << 10]
    began = server.cpu_seconds()
    reply = post(server, content, Content_Encoding="gzip")
    assert (reply.status_code, error_of(reply)["code"]) == (413, "body_too_large")
    assert server.cpu_seconds() - began < 20


@pytest.mark.parametrize(
    "content",
    [b"{}", b"\x1f", GZIPPED[:-3], GZIPPED + b"more", GZIPPED[:12] + b"\xff" * 8],
)
def test_what_is_not_gzip_is_refused(server, content):
    reply = post(server, content, Content_Encoding="gzip")
    assert (reply.status_code, error_of(reply)["code"]) == (400, "not_gzip")


LARGE = {
    "unknown keys": ("/generate", {**{f"k{i}": 1 for i in range(70_000)}}),
    "unknown keys of the policy": ("/generate", {"policy": {f"k{i}": 1 for i in range(70_000)}}),
    "arrays": ("/generate", {"policy": [[]] * 250_000}),
    "wrong tokens": ("/committor", {"constraint": {}, "state": {"tokens": [""] * 65_000}}),
    "too many tokens": ("/committor", {"constraint": {}, "state": {"tokens": [1] * 300_000}}),
    "messages": ("/v1/chat/completions", {"model": "mini", "messages": [{}] * 250_000}),
    "parts": ("/v1/chat/completions", {"model": "mini", "messages": [{"role": "user", "content": [1] * 340_000}]}),
    "depth": ("/v1/completions", None),
}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_refusal_costs_little(server, name):
    """All of it is spent on the event loop, which answers nobody meanwhile."""
    path, body = LARGE[name]
    content = json.dumps(body).encode() if body is not None else b"[" * 1_000_000
    server.wait_idle()
    before = server.cpu_seconds()
    reply = post(server, content, path)
    assert server.cpu_seconds() - before < MOST_SECONDS
    assert reply.status_code in {400, 413, 422}
    assert error_of(reply)["message"]


@pytest.mark.parametrize(
    "content", [b'{"a":' * 2000 + b"1" + b"}" * 2000, b'{"seed": ' + b"9" * 5000 + b"}", b'{"prompt": "a\xff"}']
)
def test_json_that_no_parser_takes_is_told_what_is_wrong(server, content):
    reply = post(server, content)
    assert (reply.status_code, error_of(reply)["code"]) == (400, "not_json")
    assert all(word in error_of(reply)["message"] for word in ("UTF-8", "levels", "digits"))


def test_text_counts_as_one_value():
    for text in ("[MASK] " * 14_000, 'a, b: {c} [d]\\"' * 6000, '"' * 30_000, "\\" * 50_000):
        check_values(json.dumps({"prompt": text, "state": [text, {"text": text}]}).encode())
        check_values(json.dumps({"prompt": text}, ensure_ascii=False).encode())


@pytest.mark.parametrize("hidden", ['\\"', "\\\\", "\\u0022", ""])
def test_values_do_not_hide_behind_strings(hidden):
    keys = {f"k{i}{hidden}": hidden for i in range(MAX_KEYS + 1)}
    with pytest.raises(ApiError, match="keys"):
        check_values(json.dumps(keys).encode())
    with pytest.raises(ApiError, match="UTF-8"):
        check_values(json.dumps(keys).encode("utf-16"))


def test_unended_strings_are_looked_at_once():
    for content in (b'"' + b'\\"' * 500_000, b'"\\' * 300_000, b'["' * 300_000, b"\\" * 900_000 + b"[" * 90_000):
        began = time.process_time()
        with suppress(ApiError):
            check_values(content + b"[" * 11_000)
        assert time.process_time() - began < 5


def test_the_documentation_runs_its_own_lines_alone(server):
    page = server.client.get("/docs")
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'self' 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    assert policy["frame-ancestors"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
