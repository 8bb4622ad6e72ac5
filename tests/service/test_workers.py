"""Lanes of worker threads: what holds one up holds up no other, and deadlines count whatever a request waits for."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

import service.generation.job as job_module
from decoding.constraints.paper.keywords import Keywords
from service.app import build_app
from service.config.settings import Settings
from service.workers import LARGE_BODY, THREADS, WorkerLane, Workers
from tests.service.process import wait_until

SMALL = {"prompt": "a", "gen_length": 4, "steps": 2, "policy": {"preset": "base"}}
LARGE = {**SMALL, "constraint": {"type": "no_comma"}, "prompt": "a " * LARGE_BODY}


@pytest.fixture(scope="module")
def client():
    with TestClient(build_app(Settings(threads=1))) as opened:
        wait_until(lambda: opened.get("/health/ready").status_code, lambda status: status == 200, "the model")
        yield opened


def test_a_held_up_lane_holds_up_no_other(client, monkeypatch):
    """Large bodies that never end are prepared beside small ones; a deadline ends the wait for the lane."""
    let_go, parse = threading.Event(), job_module.parse

    def slow(spec):
        let_go.wait(120)
        return parse(spec)

    monkeypatch.setattr(job_module, "parse", slow)
    count = THREADS[WorkerLane.LARGE] + 1
    with ThreadPoolExecutor(count) as pool:
        try:
            stuck = [pool.submit(client.post, "/generate", json=LARGE) for _ in range(count)]
            assert client.post("/generate", json=SMALL).status_code == 200
            late = client.post("/generate", json={**LARGE, "deadline_s": 0.3})
            assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
            assert not any(each.done() for each in stuck)
        finally:
            let_go.set()
        assert {each.result().status_code for each in stuck} == {422}  # the prompt is longer than the model takes


def test_a_deadline_counts_from_the_requests_arrival(client, monkeypatch):
    """Time that a request waited before it was prepared is gone."""
    seen = []
    engine = client.app.state.service.backend.engine
    original = engine.submit_all
    monkeypatch.setattr(engine, "submit_all", lambda jobs: seen.extend(jobs) or original(jobs))
    parse = job_module.deadline_of

    def late(seconds, arrived, settings):
        assert arrived is not None
        return parse(seconds, arrived - 3600.0, settings)

    monkeypatch.setattr(job_module, "deadline_of", late)
    reply = client.post("/generate", json={**SMALL, "deadline_s": 60})
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_work_whose_caller_left_before_it_began_never_runs():
    async def leave() -> list[str]:
        workers, let_go, ran = Workers(), threading.Event(), []
        busy = [
            asyncio.create_task(workers.run(WorkerLane.LARGE, lambda: let_go.wait(60)))
            for _ in range(THREADS[WorkerLane.LARGE])
        ]
        await asyncio.sleep(0.05)
        left = asyncio.create_task(workers.run(WorkerLane.LARGE, lambda: ran.append("left")))
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.wait({left})
        let_go.set()
        await asyncio.gather(*busy)
        await workers.run(WorkerLane.LARGE, lambda: ran.append("stayed"))
        workers.close()
        return ran

    assert asyncio.run(leave()) == ["stayed"]


def test_a_deadline_passes_while_a_text_is_judged(client, monkeypatch):
    """The engine, which waits for the verdict, takes no step in which it would see that the time is up."""
    let_go = threading.Event()
    checks = Keywords._checks

    def slow(constraint, text):
        let_go.wait(120)
        return checks(constraint, text)

    monkeypatch.setattr(Keywords, "_checks", slow)
    body = {"gen_length": 4, "constraint": {"type": "keywords", "keywords": ["dog"]}, "deadline_s": 1.0}
    try:
        reply = client.post("/generate", json={**body, "policy": {"preset": "reopen_repair"}})
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    finally:
        let_go.set()
