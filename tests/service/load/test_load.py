"""Many at once: same texts, honest counters, a free event loop, rows freed at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.service.process import total

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball", "beach"]}
POLICIES = [
    {"preset": "base"},
    {"preset": "full_cfg"},
    {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.3}},
    {"preset": "parallel_tail", "gate": {"source": "fraction", "fraction": 0.5}, "tail_width": 4},
]


def request(index):
    return {
        "prompt": "Write one sentence." if index % 3 else "A much longer prompt, so that rows differ in length.",
        "constraint": KEYWORDS,
        "policy": POLICIES[index % len(POLICIES)],
        "gen_length": 12 + 4 * (index % 2),
        "steps": 8,
        "seed": index,
    }


def together(server, requests):
    with (
        httpx.Client(base_url=server.url, timeout=600, limits=httpx.Limits(max_connections=64)) as client,
        ThreadPoolExecutor(len(requests)) as pool,
    ):
        return list(pool.map(lambda body: client.post("/generate", json=body), requests))


def test_a_request_gives_the_same_text_alone_and_among_31_others(server):
    replies = together(server, [request(i) for i in range(32)])
    assert {reply.status_code for reply in replies} == {200}
    for index in range(0, 32, 5):
        crowded, alone = replies[index].json(), server.generate(request(index))
        assert alone["samples"] == crowded["samples"]


def test_metrics_equal_the_ledgers(server):
    before = server.wait_idle()
    bodies = [request(i) for i in range(12)] + [{**request(1), "n": 3}, {**request(0), "stream": True}]
    doomed = {"prompt": "a", "gen_length": 64, "steps": 4096, "deadline_s": 0.2, "policy": {"preset": "base"}}
    replies = together(server, [*bodies, doomed])
    assert [reply.status_code for reply in replies] == [200] * 14 + [504]
    after = server.wait_idle() - before
    answers = [reply.json() for reply in replies[:13]]
    answers.append(server.generate(request(0)))  # for the stream's share; counted below
    after = server.wait_idle() - before
    samples = [sample for answer in [*answers, answers[-1]] for sample in answer["samples"]]
    ledgers = [sample["forward_evaluations"] for sample in samples]
    spent = sum(ledger["total"] for ledger in ledgers)
    abandoned = after["astargate_forward_rows_abandoned_total"]
    assert total(after, "forward_rows_spent_total") == spent
    assert total(after, "forward_rows_total") == spent + abandoned
    assert total(after, "forward_rows_total", branch="unconditional") == sum(led["unconditional"] for led in ledgers)
    assert total(after, "forward_rows_full_cfg_equivalent_total") == sum(led["full_cfg_equivalent"] for led in ledgers)
    full = [led["total"] for led in ledgers if led["total"] == led["full_cfg_equivalent"]]
    assert total(after, "forward_rows_spent_total", policy="full_cfg", family="commongen-k3") == sum(full)
    assert total(after, "step_rows_sum") == total(after, "forward_rows_total")
    assert total(after, "denoising_steps_total", phase="guided") == total(
        after, "forward_rows_total", branch="unconditional"
    )
    assert total(after, "constraint_outcomes_total") == len(samples)
    assert total(after, "constraint_outcomes_total", outcome="satisfied") == sum(s["satisfied"] for s in samples)
    assert total(after, "gate_decisions_total") == len(samples)
    handed_off = [s["gate"]["handoff_fraction"] for s in samples if s["gate"]["decision"] == "handoff"]
    assert total(after, "handoff_fraction_count") == len(handed_off)
    assert abs(total(after, "handoff_fraction_sum") - sum(handed_off)) < 1e-9
    assert total(after, "requests_total") == 16
    assert total(after, "requests_total", finish_reason="deadline") == 1
    assert total(after, "request_duration_seconds_count") == 16
    assert total(after, "time_to_first_commit_seconds_count") >= len(samples)


def test_labels_hold_no_client_strings(server):
    server.generate({"prompt": "quixotic zebra", "policy": {"preset": "base"}, "gen_length": 4})
    server.client.post("/generate", json={"prompt": "a", "family": "quixotic"})
    server.client.get("/quixotic")
    text = server.client.get("/metrics").text
    assert "quixotic" not in text
    assert 'family="other"' in text
    assert "astargate_build_info{" in text


def test_a_disconnected_client_frees_its_rows(server):
    before = server.wait_idle()
    endless = {"prompt": "a", "gen_length": 64, "steps": 4096, "n": 4, "policy": {"preset": "full_cfg"}}
    connection = server.open_request(endless)
    server.wait_rows(before)
    connection.close()
    after = server.wait_idle() - before
    planned = 4 * 2 * 4096
    assert 0 < after["astargate_forward_rows_abandoned_total"] < planned / 2
    assert total(after, "requests_total", finish_reason="cancelled") == 1
    rows = total(server.metrics(), "forward_rows_total")
    time.sleep(1.0)
    in_flight = 4 * 2
    assert total(server.metrics(), "forward_rows_total") - rows <= in_flight


ROUNDS = 50
ANSWERS = 20


def steps_meanwhile(server):
    """Engine steps that pass while liveness is asked for `ANSWERS` times, one question after another."""
    with httpx.Client(base_url=server.url, timeout=600) as client:
        before = total(server.metrics(), "step_rows_count")
        for _ in range(ANSWERS):
            assert client.get("/health/live").status_code == 200
        return total(server.metrics(), "step_rows_count") - before


def test_the_event_loop_stays_free_with_32_generations_running(server):
    """A loop that ran the model would answer once a step at most, in every round; a free one answers many times.

    Steps are counted and not seconds. A machine that lets the client wait spoils some rounds, never all.
    """
    endless = {"prompt": "a", "gen_length": 32, "steps": 900, "policy": {"preset": "full_cfg"}}
    requests = [{**endless, "seed": seed} for seed in range(32)]
    connections = [server.open_request(body) for body in requests]
    server.wait_running(32)
    rounds = []
    while len(rounds) < ROUNDS and (not rounds or min(rounds) >= ANSWERS / 2):
        rounds.append(steps_meanwhile(server))
    assert server.metrics()["astargate_requests_running"] == 32
    for connection in connections:
        connection.close()
    server.wait_idle()
    assert min(rounds) < ANSWERS / 2, rounds
