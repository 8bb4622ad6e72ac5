"""What tools sent when they ran against a server (docs/tools.md), sent again word for word: all of it is served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.service.process import ROOT, ServerProcess

RECORDED: list[dict[str, Any]] = [
    json.loads(line)
    for line in (ROOT / "tests" / "fixtures" / "tools" / "requests.jsonl").read_text(encoding="utf-8").splitlines()
]
PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")


def answered(server: ServerProcess, path: str, body: dict[str, Any]) -> dict[int, tuple[str, str]]:
    """Text and finish reason of each choice, from a plain answer or from the chunks of a stream."""
    reply = server.client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    if not body.get("stream"):
        answer = reply.json()
        usage = answer["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        texts = [choice["message"]["content"] if "messages" in body else choice["text"] for choice in answer["choices"]]
        reasons = [choice["finish_reason"] for choice in answer["choices"]]
        return dict(enumerate(zip(texts, reasons, strict=True)))
    *events, end = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    chunks = [json.loads(event) for event in events]
    choices: dict[int, tuple[str, str]] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        text, _ = choices.get(choice["index"], ("", ""))
        added = choice["delta"].get("content", "") if "messages" in body else choice["text"]
        choices[choice["index"]] = (text + added, choice["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] > 0
    return choices


@pytest.mark.parametrize("sent", RECORDED, ids=[f"{sent['tool']}-{at}" for at, sent in enumerate(RECORDED)])
def test_what_a_tool_sent_is_served(server: ServerProcess, sent: dict[str, Any]) -> None:
    body = sent["body"]
    choices = answered(server, sent["path"], body)
    prompts = body["prompt"] if isinstance(body.get("prompt"), list) else [body.get("prompt")]
    assert sorted(choices) == list(range(len(prompts) * (body.get("n") or 1)))
    stop = body.get("stop") or []
    for text, reason in choices.values():
        assert reason in ("stop", "length")
        assert not any(phrase in text for phrase in ([stop] if isinstance(stop, str) else stop))


def test_every_tool_of_the_page_is_among_them() -> None:
    headings = {line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")}
    assert {sent["tool"] for sent in RECORDED} <= headings
    assert len({sent["tool"] for sent in RECORDED}) >= 3
