"""A mixed load that makes every metric move, and the answers that it got."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.service.process import ServerProcess, total, wait_until

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
FOUR = {"type": "keywords", "keywords": ["dog", "ball", "beach", "run"]}
NO_COMMA = {"type": "no_comma"}
EARLY = {"source": "fraction", "fraction": 0.3}
ENDLESS = {"prompt": "a", "gen_length": 64, "steps": 4000, "n": 1, "policy": {"preset": "base"}}
OPTIONS = ("--batch-invariant", "--max-queued-rows", "12000", "--audit-share", "1")
"""Of the server: tiles are padded, a few endless requests fill the queue, and every sample with a gate is audited."""
WATCHED = {"gen_length": 16, "steps": 16, "policy": {"gate": {"source": "constant"}, "tail_width": 8}}
"""The setting that the shipped cuts were measured in."""
SHAPES: tuple[dict[str, Any], ...] = (
    {"constraint": KEYWORDS, "policy": {"preset": "base"}},
    {"constraint": KEYWORDS, "policy": {"preset": "full_cfg"}},
    {"constraint": KEYWORDS, "policy": {"preset": "handoff", "gate": EARLY}},
    {"constraint": FOUR, "policy": {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.5}}},
    {"constraint": FOUR, "policy": {"preset": "handoff", "gate": {"source": "drained"}, "order": "guidance_boost"}},
    {"constraint": NO_COMMA, "policy": {"preset": "handoff", "gate": {"source": "constant"}}},
    {"constraint": KEYWORDS, **WATCHED},
    {"constraint": NO_COMMA, "policy": {"preset": "handoff", "gate": EARLY, "tail_width": 4}, "n": 2},
    {"prompt": "Write one sentence.", "policy": {"preset": "handoff", "gate": {"source": "constant"}}},
    {"constraint": KEYWORDS, "policy": {"preset": "handoff", "gate": EARLY, "guidance_scale": 4.0}, "stream": True},
)


def bodies(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Requests that must succeed; its seed distinguishes it from the others."""
    return [{"gen_length": 12, "steps": 12, **SHAPES[i % len(SHAPES)], "seed": seed + 10 * i} for i in range(count)]


def answer_of(reply: httpx.Response) -> dict[str, Any]:
    """The answer, from JSON or from a stream's last event."""
    assert reply.status_code == 200, reply.text
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return dict(reply.json())
    event, data = reply.text.strip().split("\n\n")[-1].split("\n")
    assert event == "event: done", reply.text
    return dict(json.loads(data.removeprefix("data: ")))


def send(server: ServerProcess, requests: list[dict[str, Any]], threads: int = 12) -> list[httpx.Response]:
    """Post all, `threads` at a time."""
    with httpx.Client(base_url=server.url, timeout=600) as client, ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda body: client.post("/generate", json=body), requests))


def mixed(server: ServerProcess, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """`count` requests of every shape among clients that leave and deadlines that pass; the answers."""
    leaving = [server.open_request({**ENDLESS, "seed": index}) for index in range(2)]
    server.wait_running(2)
    late = {**ENDLESS, "deadline_s": 0.5, "policy": {"preset": "full_cfg"}, "steps": 1000}
    with ThreadPoolExecutor(1) as pool:
        passing = pool.submit(server.client.post, "/generate", json=late)
        replies = send(server, bodies(count, seed))
        assert passing.result().status_code == 504, passing.result().text
    for connection in leaving:
        connection.close()
    server.wait_idle()
    return [answer_of(reply) for reply in replies]


def until_skipped(server: ServerProcess) -> list[dict[str, Any]]:
    """Requests with `eos_fill` up to the first whose end of text made rows unnecessary."""
    body = {"constraint": KEYWORDS, "policy": {"preset": "base"}, "gen_length": 32, "eos_fill": True}
    return _until(server, body, lambda sample: sample["forward_evaluations"]["skipped_by_eos"] > 0, "ended early")


def until_repaired(server: ServerProcess) -> list[dict[str, Any]]:
    """Requests with repair up to the first whose text failed at once."""
    policy = {"preset": "reopen_repair", "gate": EARLY, "repair": {"selector": "commit_confidence", "max_rounds": 1}}
    words = {"type": "keywords", "keywords": ["dog", "ball", "beach", "run", "water", "sky"]}
    body = {"constraint": words, "policy": policy, "gen_length": 12, "steps": 12}
    return _until(server, body, lambda sample: sample["repair"]["rounds"] > 0, "failed")


def _until(
    server: ServerProcess, body: dict[str, Any], wanted: Callable[[dict[str, Any]], bool], what: str
) -> list[dict[str, Any]]:
    answers = []
    for seed in range(64):
        answers.append(server.generate({**body, "seed": seed}))
        if wanted(answers[-1]["samples"][0]):
            return answers
    raise AssertionError(f"no text of 64 {what}")


def audited(server: ServerProcess) -> None:
    """Wait until every audit that the load made due has been run."""

    def done(metrics: Counter[str]) -> bool:
        return total(metrics, "audit_pairs_total") > 0 and not metrics["astargate_audits_waiting"]

    wait_until(server.metrics, done, "the last audit")


def refused(server: ServerProcess) -> None:
    """Fill the queue until a request is turned away."""
    connections = [server.open_request({**ENDLESS, "seed": seed}) for seed in range(8)]
    try:
        server.wait_running(2)
        probe = {**ENDLESS, "deadline_s": 0.5}  # it must end where the queue has room for it
        wait_until(lambda: server.client.post("/generate", json=probe).status_code, lambda code: code == 429, "a 429")
    finally:
        for connection in connections:
            connection.close()
        server.wait_idle()


def committor(server: ServerProcess) -> None:
    """A small committor measurement, answered at once."""
    body = {"constraint": KEYWORDS, "state": {"fraction": 0.3}, "gen_length": 8, "steps": 8, "rollouts": 2, "seed": 7}
    reply = server.client.post("/committor", json=body)
    assert reply.status_code == 200, reply.text
