"""When requests are sent again, and when never."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from astargate_client import (
    AsyncClient,
    AuthenticationError,
    Client,
    ConnectionFailedError,
    DeadlineError,
    OverloadedError,
    ServerError,
    StatusError,
    StreamBrokenError,
    TimedOutError,
    UnavailableError,
    UnreadableAnswerError,
)
from astargate_client.transport.errors import retry_after
from astargate_client.transport.retries import Retries
from tests.clients.scripted import HANG_UP, Reply, error, scripted
from tests.service.process import free_port, wait_until

HEALTHY = Reply(body={"status": "ready", "model": "x"})
GATES = Reply(body={"object": "list", "data": [], "refused": []})
SOON = {"retry-after": "0.05"}
EVENTS = {"content-type": "text/event-stream"}
STEP = 'event: step\ndata: {"index":0,"step":0,"phase":"guided","positions":[1],"tokens":[9],"pieces":["dog"],' \
       '"confidence":[0.8],"filled":[],"masked":2}\n\n'  # fmt: skip


def client(server, **options) -> Client:
    return Client(server.url, **options)


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_refusal_is_followed_by_another_attempt_under_the_same_id(status):
    with scripted(Reply(status, error("busy"), SOON), GATES) as server, client(server) as c:
        answer = c.gates()
        first, second = server.requests
    assert answer.data == []
    assert first["headers"]["X-Request-Id"] == second["headers"]["X-Request-Id"] == answer.request_id


def test_an_async_client_does_the_same():
    async def ask(url: str):
        async with AsyncClient(url) as c:
            return await c.gates()

    with scripted(Reply(503, error("not_ready"), SOON), GATES) as server:
        assert asyncio.run(ask(server.url)).data == []
        assert len(server.requests) == 2


@pytest.mark.parametrize(("status", "code"), [(400, "x"), (401, "x"), (404, "x"), (422, "x"), (500, "x"),
                                              (504, "deadline_exceeded")])  # fmt: skip
def test_what_would_fail_again_is_not_sent_again(status, code):
    with scripted(Reply(status, error(code), SOON)) as server, client(server) as c:
        with pytest.raises(StatusError) as caught:
            c.generate("a")
        assert len(server.requests) == 1
    assert (caught.value.status, caught.value.code) == (status, code)


def test_attempts_end():
    with scripted(Reply(429, error("queue_full"), SOON)) as server, client(server, max_retries=3) as c:
        with pytest.raises(OverloadedError) as caught:
            c.gates()
        assert len(server.requests) == 4
        with pytest.raises(OverloadedError):
            c.with_options(max_retries=0).gates()
        assert len(server.requests) == 5
    assert caught.value.retry_after == 0.05


def test_retry_after_is_waited_for_and_a_long_one_ends_the_attempts():
    with scripted(Reply(503, error("not_ready"), {"retry-after": "0.7"}), GATES) as server, client(server) as c:
        c.gates()
        first, second = server.requests
    assert second["time"] - first["time"] >= 0.7
    with scripted(Reply(503, error("draining"), {"retry-after": "3600"})) as server, client(server) as c:
        with pytest.raises(UnavailableError):
            c.gates()
        assert len(server.requests) == 1


def test_another_attempt_asks_for_the_same_texts():
    refused = Reply(429, error("queue_full"), SOON)
    with scripted(refused, HANG_UP, Reply(422, error("stop"))) as server, client(server) as c:
        with pytest.raises(StatusError, match="no"):
            c.generate("a")
        first, second, third = server.bodies
    assert first == second == third
    assert isinstance(first["seed"], int)


def test_seeds_that_are_left_open_differ():
    with scripted(Reply(422, error("stop"))) as server, client(server) as c:
        for _ in range(2):
            with pytest.raises(StatusError):
                c.generate("a")
        assert server.bodies[0]["seed"] != server.bodies[1]["seed"]


def test_a_broken_connection_is_tried_again_but_not_for_a_job():
    with scripted(HANG_UP, GATES) as server, client(server) as c:
        assert c.gates().data == []
    with scripted(HANG_UP) as server, client(server) as c:
        with pytest.raises(ConnectionFailedError) as caught:
            c.committor.submit("a", state=0.3, constraint={"type": "no_comma"})
        assert len(server.requests) == 1
    assert caught.value.request_id in str(caught.value)


def test_a_job_that_was_refused_is_submitted_again():
    with scripted(Reply(429, error("queue_full"), SOON), Reply(422, error("stop"))) as server, client(server) as c:
        with pytest.raises(StatusError, match="no"):
            c.committor.submit("a", state="a [MASK]", constraint={"type": "no_comma"})
        assert server.bodies[0] == server.bodies[1]
        assert server.bodies[0]["state"] == {"text": "a [MASK]"}


def test_a_server_that_is_not_there():
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, max_retries=1) as c, pytest.raises(ConnectionFailedError, match="cannot be reached") as caught:
        c.gates()
    assert not caught.value.sent
    assert url in str(caught.value)


def test_the_caller_s_time_is_not_spent_twice():
    with scripted(Reply(body={}, silent_seconds=60.0)) as server, client(server, timeout=1.0) as c:
        with pytest.raises(TimedOutError):
            c.generate("a")
        with pytest.raises(TimedOutError):
            c.with_options(timeout=60).generate("a", timeout=1.0)
        wait_until(lambda: len(server.requests), lambda count: count >= 2, "the second request")
        assert len(server.requests) == 2


def test_nothing_is_sent_again_after_the_first_event():
    with scripted(Reply(body=STEP, headers=EVENTS, hang_up=True)) as server, client(server) as c:
        with pytest.raises(StreamBrokenError) as caught, c.stream("a") as events:
            list(events)
        assert len(server.requests) == 1
    assert caught.value.request_id == server.requests[0]["headers"]["X-Request-Id"]
    with scripted(Reply(body=STEP, headers=EVENTS)) as server, client(server) as c, c.stream("a") as events:
        assert type(next(events)).__name__ == "StepEvent"
        with pytest.raises(StreamBrokenError, match="before its last event"):
            next(events)


def test_a_stream_that_is_refused_is_asked_for_again():
    with scripted(Reply(503, error("not_ready"), SOON), Reply(body=STEP, headers=EVENTS)) as server:
        with client(server) as c, c.stream("a", seed=3) as events:
            assert next(events).pieces == ["dog"]
            assert str(events.canvases[0]) == "· dog"
        assert len(server.requests) == 2


def test_what_is_no_astargate_server_is_named_so():
    with scripted(Reply(body="<html>", headers={"content-type": "text/html"})) as server, client(server) as c:
        with pytest.raises(UnreadableAnswerError, match="astargate server"):
            c.gates()
        with pytest.raises(UnreadableAnswerError, match="text/html"), c.stream("a"):
            pass
        assert len(server.requests) == 2
    with (
        scripted(Reply(500, "oh <dear>")) as server,
        client(server) as c,
        pytest.raises(ServerError, match="oh <dear>"),
    ):
        c.gates()


def test_the_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("ASTARGATE_API_KEY", "sk-hidden")
    with scripted(Reply(401, error("invalid_key"))) as server:
        monkeypatch.setenv("ASTARGATE_BASE_URL", server.url + "/")
        with Client() as c:
            with pytest.raises(AuthenticationError) as caught:
                c.gates()
            shown = f"{c!r} {c.connection!r} {caught.value!r}"
        assert server.requests[0]["headers"]["Authorization"] == "Bearer sk-hidden"
        with Client(api_key="") as c, pytest.raises(AuthenticationError):
            c.gates()
        assert "Authorization" not in server.requests[1]["headers"]
    assert "sk-hidden" not in shown


def test_pauses_double_with_jitter():
    retries, lost = Retries(limit=9), ConnectionFailedError("gone", sent=False)
    for attempt, most in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 8.0]):
        pauses = {retries.pause(attempt, lost, repeatable=False) for _ in range(50)}
        assert len(pauses) > 1
        assert all(most / 2 <= pause <= most for pause in pauses)
    assert retries.pause(9, lost, repeatable=True) is None


def test_retry_after_may_be_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_after({"retry-after": later}) <= 30
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after({"retry-after": "7"}) == 7.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_settings_are_checked():
    for wrong in ({"base_url": "localhost:8000"}, {"max_retries": -1}):
        with pytest.raises(ValueError, match="must"):
            Client(**wrong)


@pytest.mark.parametrize("url", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"])
def test_the_base_url_may_end_as_openai_s_does(url):
    assert Client(url).connection.base_url == "http://host:1"


def test_errors_of_time_and_load_can_be_told_apart():
    assert issubclass(DeadlineError, ServerError)
    assert not issubclass(OverloadedError, ServerError)
