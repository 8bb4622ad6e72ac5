"""Presets reopen_repair and auto over HTTP: a failed text is repaired, streamed, counted and bounded."""

from __future__ import annotations

import pytest

from tests.service.process import total
from tests.service.test_streaming import stream

CONSTRAINT = {"type": "letter_frequency", "letter": "m", "relation": "at_least", "count": 4}
GATE = {"source": "fraction", "fraction": 0.25}


def body(rounds, seed=0, **fields):
    repair = {"max_rounds": rounds, "reopen": 4}
    policy = {"preset": "reopen_repair", "gate": GATE, "repair": repair}
    return {"prompt": "Write one sentence.", "constraint": CONSTRAINT, "policy": policy, "gen_length": 16, "seed": seed,
            **fields}  # fmt: skip


@pytest.fixture(scope="module")
def recovered(server):
    """The request and answer of a seed whose first text fails and whose repaired text does not."""
    for seed in range(0, 96, 8):
        for sample in server.generate(body(8, seed, n=8))["samples"]:
            if sample["repair"]["recovered"]:
                request = body(8, sample["seed"])
                return request, server.generate(request)["samples"][0]
    raise AssertionError("no seed fails first and recovers")


def test_a_failed_text_is_repaired_and_counted(server, recovered):
    _, sample = recovered
    repair, rows = sample["repair"], sample["forward_evaluations"]
    assert sample["satisfied"] is True
    assert repair["rounds"] >= 1
    assert repair["attempts"] == 1
    assert repair["reopened"] == 4 * repair["rounds"]
    assert [p["round"] for p in repair["passes"]] == list(range(repair["rounds"] + 1))
    assert [p["satisfied"] for p in repair["passes"]] == [False] * repair["rounds"] + [True]
    assert repair["passes"][repair["kept"]]["text"] == sample["text"]
    assert rows["repair"] == 2 * 4 * repair["rounds"]
    assert rows["total"] == 16 + 4 + rows["repair"]
    assert sample["gate"]["decision"] == "handoff"


def test_without_rounds_the_same_seed_gives_the_failed_text(server, recovered):
    request, sample = recovered
    failed = server.generate(body(0, request["seed"]))["samples"][0]
    assert failed["satisfied"] is False
    assert failed["text"] == sample["repair"]["passes"][0]["text"]
    assert failed["forward_evaluations"]["repair"] == failed["repair"]["rounds"] == 0
    plain = server.generate({**request, "policy": {"preset": "handoff", "gate": GATE}})["samples"][0]
    assert plain["text"] == failed["text"]
    assert plain["repair"] is None


def test_the_stream_shows_what_is_reopened(server, recovered):
    request, sample = recovered
    events, _ = stream(server, request)
    reopened = [data for name, data in events if name == "reopen"]
    assert [event["round"] for event in reopened] == list(range(1, sample["repair"]["rounds"] + 1))
    assert [event["positions"] for event in reopened] == [p["reopened"] for p in sample["repair"]["passes"][1:]]
    canvas = {}
    for name, data in events:
        if name == "step":
            canvas |= dict(zip(data["positions"], data["tokens"], strict=True))
        elif name == "reopen":
            assert len(canvas) == 16
            canvas = {p: t for p, t in enumerate(data["canvas"]) if p not in data["positions"]}
    traced = server.generate({**request, "trace": True})["samples"][0]
    assert [canvas[position] for position in range(16)] == traced["trace"]["tokens"]
    assert [r["reopened"] for r in traced["trace"]["resumed"]] == [event["positions"] for event in reopened]
    assert events[-1][0] == "done"
    assert events[-1][1]["samples"] == [sample]
    assert len([name for name, _ in events if name == "handoff"]) == 1


def test_rounds_are_counted(server, recovered):
    request, sample = recovered
    before = server.wait_idle()
    server.generate(request)
    after = server.metrics()
    for outcome, count in (("recovered", 1), ("failed", sample["repair"]["rounds"] - 1)):
        labels = {"selector": "constraint_aware", "outcome": outcome}
        assert total(after, "repair_rounds_total", **labels) - total(before, "repair_rounds_total", **labels) == count
    spent = sample["forward_evaluations"]
    for purpose, rows in (("generate", spent["total"] - spent["repair"]), ("repair", spent["repair"])):
        gained = total(after, "forward_rows_total", purpose=purpose) - total(
            before, "forward_rows_total", purpose=purpose
        )
        assert gained == rows


@pytest.mark.parametrize("budget", [None, 60])
def test_auto_tries_until_its_budget_is_spent(server, budget):
    policy = {"preset": "auto"} | ({"budget_rows": budget} if budget else {})
    answer = server.generate({**body(0, n=6), "policy": policy, "constraint": {**CONSTRAINT, "count": 6}})
    assert answer["policy"]["budget_rows"] == (budget or 64)
    for sample in answer["samples"]:
        assert sample["forward_evaluations"]["total"] <= (budget or 64)
        assert sample["satisfied"] is sample["repair"]["passes"][sample["repair"]["kept"]]["satisfied"]
        presets = [p["preset"] for p in sample["repair"]["passes"]]
        assert len(presets) == sample["repair"]["attempts"] + sample["repair"]["rounds"]
    assert any(len(sample["repair"]["passes"]) > 1 for sample in answer["samples"])


def test_a_client_that_leaves_ends_its_repair(server):
    before = server.wait_idle()
    policy = {"preset": "reopen_repair", "gate": GATE, "repair": {"selector": "restart", "max_rounds": 64}}
    constraint = {"type": "letter_frequency", "letter": "q", "relation": "at_least", "count": 200}
    connection = server.open_request({**body(0, n=8), "constraint": constraint, "policy": policy, "gen_length": None})
    server.wait_running()
    server.wait_rows(before)  # a request that is let go before its first step abandons nothing
    connection.close()
    after = server.wait_idle()
    abandoned = total(after, "forward_rows_abandoned_total") - total(before, "forward_rows_abandoned_total")
    assert 0 < abandoned < 8 * 64 * 32


def test_a_stream_that_is_left_during_a_repair_ends_it(server):
    before = server.wait_idle()
    policy = {"preset": "reopen_repair", "gate": GATE, "repair": {"selector": "restart", "max_rounds": 64}}
    constraint = {"type": "letter_frequency", "letter": "q", "relation": "at_least", "count": 200}
    request = {**body(0), "constraint": constraint, "policy": policy, "gen_length": None, "stream": True}
    with server.client.stream("POST", "/generate", json=request) as reply:
        lines = reply.iter_lines()
        assert "event: reopen" in lines
        assert "event: step" in lines  # a repair that is let go before its first step costs nothing
    after = server.wait_idle()
    abandoned = total(after, "forward_rows_abandoned_total") - total(before, "forward_rows_abandoned_total")
    repairing = total(after, "forward_rows_total", purpose="repair") - total(
        before, "forward_rows_total", purpose="repair"
    )
    assert 0 < repairing < abandoned < 64 * 64


def test_samples_of_one_request_are_repaired_alone(server, recovered):
    request, sample = recovered
    answer = server.generate({**request, "n": 4})["samples"]
    assert {**answer[0], "index": 0} == sample
    assert [one["seed"] for one in answer] == [request["seed"] + index for index in range(4)]
    assert len({one["repair"]["rounds"] for one in answer}) > 1 or not all(one["satisfied"] for one in answer[1:])


@pytest.mark.parametrize("anchor", [0, 1, "end"])
def test_the_first_pass_may_use_up_the_budget(server, anchor):
    policy = {"preset": "reopen_repair", "gate": GATE, "repair": {"anchor": anchor}, "budget_rows": 20}
    constraint = {**CONSTRAINT, "letter": "q", "count": 9}
    (sample,) = server.generate({**body(0), "constraint": constraint, "policy": policy})["samples"]
    assert (sample["forward_evaluations"]["total"], sample["repair"]["rounds"], sample["satisfied"]) == (20, 0, False)
