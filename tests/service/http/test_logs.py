"""What the server writes down: request ids and keys, one JSON object a line, no prompt text, traces by OTLP."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.service.process import error_of

SECRET = "zanzibarian"
SMALL = {"prompt": f"a {SECRET} dog", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
ORIGIN = {"Origin": "https://pages.example"}


def exercise(process):
    """Requests of every kind that hold the secret word."""
    process.generate(SMALL, headers={"X-Request-Id": "mine-7"})
    process.generate({**SMALL, "constraint": {"type": "keywords", "keywords": [SECRET]}, "gen_length": 16})
    with process.client.stream("POST", "/generate", json={**SMALL, "stream": True}) as reply:
        reply.read()
    chat = {"model": "mini", "max_tokens": 4, "messages": [{"role": "user", "content": SECRET}]}
    assert process.client.post("/v1/chat/completions", json=chat).status_code == 200
    for wrong in ({**SMALL, "steps": -1}, {**SMALL, SECRET: 1}, {**SMALL, "deadline_s": 1e-9}):
        assert process.client.post("/generate", json=wrong).status_code in {422, 504}
    process.client.post("/generate", content=f'{{"prompt": "{SECRET}', headers={"Content-Type": "application/json"})
    process.client.get(f"/v1/models?q={SECRET}")


def entries(process):
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


def test_json_lines_name_the_request_and_never_its_text(spawn):
    process = spawn("--log-format", "json", "--log-level", "debug").wait_for(200)
    exercise(process)
    assert process.stop() == 0
    assert SECRET not in process.log.read_text()
    lines = entries(process)
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(entry) for entry in lines))
    (mine,) = [
        entry for entry in lines if entry.get("request_id") == "mine-7" and entry["logger"] == "astargate.access"
    ]
    assert (mine["method"], mine["path"], mine["status"], mine["key_id"]) == ("POST", "/generate", 200, "anonymous")
    assert 0 < mine["seconds"] < 60


def test_prompts_are_logged_where_the_operator_asks(spawn):
    process = spawn("--log-format", "json", "--log-prompts", "--no-access-log").wait_for(200)
    process.generate(SMALL, headers={"X-Request-Id": "mine-8"})
    process.stop()
    (entry,) = [entry for entry in entries(process) if entry["logger"] == "astargate.prompts"]
    assert entry["request_id"] == "mine-8"
    assert "dog" in entry["prompt"]
    assert not [entry for entry in entries(process) if entry["logger"] == "astargate.access"]


def test_other_pages_may_use_the_server_only_where_they_are_named(server, spawn):
    assert "access-control-allow-origin" not in server.client.get("/v1/models", headers=ORIGIN).headers
    process = spawn("--cors-origins", "https://pages.example").wait_for(200)
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    assert process.client.options("/generate", headers=ORIGIN | ask).headers["access-control-allow-origin"] == ORIGIN["Origin"]  # fmt: skip  # noqa: E501
    refused = process.client.post("/generate", json={"prompt": 3}, headers=ORIGIN)
    assert error_of(refused)["param"] == "prompt"
    assert refused.headers["access-control-allow-origin"] == ORIGIN["Origin"]
    other = process.client.get("/v1/models", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.fixture
def receiver():
    """A server that takes OTLP traces."""
    taken: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()


def test_traces_name_the_request_and_its_policy(spawn, receiver, monkeypatch):
    url, taken = receiver
    monkeypatch.setitem(os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setitem(os.environ, "OTEL_BSP_SCHEDULE_DELAY", "100")
    process = spawn("--traces").wait_for(200)
    exercise(process)
    assert process.stop() == 0
    spans = [span for request in taken for resource in request.resource_spans
             for scope in resource.scope_spans for span in scope.spans]  # fmt: skip
    (mine,) = {span.trace_id for span in spans if "mine-7" in str(span.attributes)}
    named = {tag.key: tag.value for span in spans if span.trace_id == mine for tag in span.attributes}
    assert named["astargate.request_id"].string_value == "mine-7"
    assert named["astargate.policy"].string_value == "base"
    assert named["astargate.finish_reason"].string_value in {"stop", "length"}
    assert not any("/health" in span.name for span in spans)
    assert SECRET not in str(taken).replace(f"q={SECRET}", ""), "a query is in the URL, a prompt is not"


def test_traces_need_somewhere_to_go(spawn):
    process = spawn("--traces")
    assert process.process.wait(600) == 2
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in process.log.read_text()
