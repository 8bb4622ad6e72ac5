"""What an event loop must not do happens on worker threads, and nobody's departure leaves work behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from starlette.testclient import TestClient

from decoding.engine.engine import EngineClosedError
from decoding.engine.scheduler import QueueFullError
from decoding.request.row_estimates import most_rows
from decoding.request.validation import JobError
from service.app import build_app
from service.config.settings import Settings
from service.generation import replies
from service.generation.prepare import prepare
from service.http.errors import ApiError
from service.lifecycle import Status
from service.schemas.generate import GenerateRequest, GenerateResponse, Sample, StepEventReply
from tests.service.process import wait_until

SMALL = {"prompt": "a", "gen_length": 4, "steps": 2, "n": 2, "policy": {"preset": "base"}}
ENDLESS = {**SMALL, "steps": 4096}


@pytest.fixture(scope="module")
def client():
    with TestClient(build_app(Settings(threads=1))) as opened:
        wait_until(lambda: opened.get("/health/ready").status_code, lambda status: status == 200, "the model")
        yield opened


@pytest.fixture
def service(client):
    return client.app.state.service


def prepared(service, body):
    backend = service.backend
    return prepare(GenerateRequest.model_validate(body), backend.model, backend.gates, service.settings)


def submitting(service, monkeypatch, change):
    """Replace the engine's `submit_all` by `change(original, jobs)`."""
    engine = service.backend.engine
    original = engine.submit_all
    monkeypatch.setattr(engine, "submit_all", lambda jobs: change(original, jobs))


async def decode(service, request):
    async with service.generation(request, "/generate") as generation:
        return await asyncio.wait_for(generation.outcomes(), 600)


@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_planned_and_written_on_worker_threads(client, service, monkeypatch, stream):
    threads = {}

    def watched(name, function):
        def call(*args, **options):
            threads.setdefault(name, set()).add(threading.current_thread().name)
            return function(*args, **options)

        return call

    submitting(service, monkeypatch, watched("submit", lambda original, jobs: original(jobs)))
    monkeypatch.setattr(replies, "sample", watched("sample", replies.sample))
    for model in (Sample, GenerateResponse, StepEventReply):
        monkeypatch.setattr(model, "model_dump_json", watched(model.__name__, model.model_dump_json))
    assert client.post("/generate", json={**SMALL, "stream": stream}).status_code == 200
    assert set(threads) == {"submit", "sample", "GenerateResponse"} | (
        {"Sample", "StepEventReply"} if stream else set()
    )
    assert all(name.startswith("astargate-worker") for names in threads.values() for name in names), threads


def test_a_client_that_leaves_while_its_request_is_submitted_leaves_nothing(client, service, monkeypatch):
    entered, go_on, handles = threading.Event(), threading.Event(), []

    def slow(original, jobs):
        entered.set()
        assert go_on.wait(600)
        handles.extend(original(jobs))
        return handles

    submitting(service, monkeypatch, slow)

    async def leave(request):
        task = asyncio.create_task(decode(service, request))
        assert await asyncio.to_thread(entered.wait, 600)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    client.portal.call(leave, prepared(service, ENDLESS))
    go_on.set()
    wait_until(lambda: [handle.done for handle in handles], lambda done: done == [True, True], "the end of both jobs")
    assert {handle.error.reason for handle in handles} == {"cancelled"}
    assert not service.active
    assert service.backend.engine.scheduler.idle


def test_news_before_anybody_watches_is_not_lost(client, service, monkeypatch):
    def finished(original, jobs):
        handles = original(jobs)
        for handle in handles:
            handle.result(600)
        return handles

    submitting(service, monkeypatch, finished)
    assert len(client.portal.call(decode, service, prepared(service, SMALL))) == 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (QueueFullError("full", 2.0), 429, "queue_full"),
        (JobError("steps", "is wrong"), 422, "invalid_value"),
        (EngineClosedError("closed"), 503, "draining"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_cross_from_the_worker_thread(client, service, monkeypatch, error, status, code, stream):
    def refuse(original, jobs):
        raise error

    submitting(service, monkeypatch, refuse)
    reply = client.post("/generate", json={**SMALL, "stream": stream})
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert not service.active


def test_a_drain_that_begins_while_a_request_is_submitted_refuses_it(client, service, monkeypatch):
    handles = []

    def draining(original, jobs):
        handles.extend(original(jobs))
        service.status = Status.DRAINING
        return handles

    submitting(service, monkeypatch, draining)
    try:
        with pytest.raises(ApiError) as refused:
            client.portal.call(decode, service, prepared(service, ENDLESS))
    finally:
        service.status = Status.READY
    assert refused.value.code == "draining"
    assert all(handle.done for handle in handles)
    assert not service.active


def test_steps_are_at_fault_where_no_sample_fits(service):
    settings = Settings(max_request_rows=100)
    backend = service.backend
    fits = {**SMALL, "n": 1, "steps": 100}
    for body, allowed in ((fits, True), ({**fits, "steps": 101}, False)):
        request = GenerateRequest.model_validate(body)
        if allowed:
            assert most_rows(prepare(request, backend.model, backend.gates, settings).job) == 100
        else:
            with pytest.raises(ApiError, match=r"101 forward evaluations.*at most 100") as refused:
                prepare(request, backend.model, backend.gates, settings)
            assert (refused.value.param, refused.value.code) == ("steps", "too_large")
