"""Jobs that outlive requests, servers and the database: resumed, not lost, not run twice, seen by their key alone."""

from __future__ import annotations

import signal
import threading
import time

import httpx
from sqlalchemy import update

from service.committor.store import JobStore
from service.committor.tables import JOBS
from service.storage.database import open_database
from tests.service.process import error_of, wait_until

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball"]}
HORIZON = {"constraint": KEYWORDS, "horizon": True, "gen_length": 8, "rollouts": 6, "seed": 3}
STATE = {"constraint": KEYWORDS, "state": {"fraction": 0.0}, "gen_length": 6, "rollouts": 2, "seed": 3}
QUEUED = ("--committor-inline-rows", "0")
LEASE = ("--lease-seconds", "600")
ENDLESS = {
    "constraint": KEYWORDS,
    "state": {"fraction": 0.0},
    "steps": 2000,
    "gen_length": 16,
    "rollouts": 30,
    "seed": 1,
}


def queue(server, body, **options):
    reply = server.client.post("/committor", json=body, **options)
    assert reply.status_code == 202, reply.text
    assert reply.headers["location"] == f"/committor/{reply.json()['id']}"
    return reply.json()["id"]


def listed(server, **options):
    return [job["status"] for job in server.client.get("/committor", **options).json()["data"]]


def follow(server, job_id, **options):
    return server.client.get(f"/committor/{job_id}", **options).json()


def reached(server, job_id, wanted, **options):
    """The job once it is as `wanted`."""

    def look():
        job = follow(server, job_id, **options)
        assert job["status"] != "failed", f"{job}\n{server.log.read_text()[-3000:]}"
        return job

    return wait_until(look, wanted, f"the state of {job_id}")


def succeeded(server, job_id):
    return reached(server, job_id, lambda job: job["status"] == "succeeded")


def expire_leases(url):
    """As if every server had been silent for too long."""
    database = open_database(url)
    with database.write() as connection:
        connection.execute(update(JOBS).values(lease_until=0.0))
    database.close()


def in_database(url, *job_ids):
    """What the database has of jobs, and of their rollouts."""
    database = open_database(url)
    store = JobStore(database, "test", 1)
    jobs = [store.get("anonymous", job_id) for job_id in job_ids]
    rollouts = [store.rollouts(job) for job in jobs]
    database.close()
    return jobs, rollouts


def test_a_killed_server_s_job_goes_on_where_it_stood(spawn, database_url):
    """kill -9 in the middle; the resumed result is the uninterrupted one's, and no continuation was run twice."""
    options = ("--batch-invariant", "--database", database_url, *QUEUED, *LEASE)
    first = spawn(*options).wait_for(200)
    job_id = queue(first, HORIZON)
    reached(first, job_id, lambda job: job["progress"]["rollouts"] >= 8)
    first.stop(signal.SIGKILL)
    (stopped,), (before,) = in_database(database_url, job_id)
    assert stopped.status == "running"
    assert 8 <= len(before) < stopped.rollouts_total
    expire_leases(database_url)
    second = spawn(*options).wait_for(200)
    resumed = succeeded(second, job_id)
    ((job,), (after,)) = in_database(database_url, job_id)
    assert (job.token, job.owner != stopped.owner) == (2, True)
    assert len(after) == job.rollouts_total == len({(r.step, r.arm, r.rollout) for r in after})
    assert set(before) <= set(after)
    assert resumed["result"]["forward_evaluations"] == resumed["progress"]["forward_evaluations"]
    whole = succeeded(second, queue(second, HORIZON))
    assert whole["result"] == resumed["result"]
    assert whole["progress"] == resumed["progress"]


def test_two_servers_share_jobs_and_one_that_drains_hands_over(spawn, database_url):
    options = ("--database", database_url, *QUEUED, "--lease-seconds", "600")
    one, other = spawn(*options), spawn(*options)
    for server in (one, other):
        server.wait_for(200)
    ids = [queue(one, {**STATE, "seed": seed, "rollouts": 6}) for seed in range(6)]
    for job_id in ids:
        succeeded(other, job_id)
    jobs, rollouts = in_database(database_url, *ids)
    assert [job.token for job in jobs] == [1] * 6
    assert len({job.owner for job in jobs}) == 2
    assert [len(rows) for rows in rollouts] == [12] * 6

    job_id = queue(one, {**HORIZON, "rollouts": 24})  # enough that it is not over before the server stops
    running = reached(one, job_id, lambda job: job["progress"]["rollouts"] > 0)
    (held,), _ = in_database(database_url, job_id)
    holder, heir = (one, other) if f"-{one.process.pid}-" in held.owner else (other, one)
    assert holder.stop() == 0
    (freed,), (kept,) = in_database(database_url, job_id)
    assert freed.status == "queued" or freed.token == 2  # no lease had to run out
    assert len(kept) >= running["progress"]["rollouts"]
    done = succeeded(heir, job_id)
    (job,), (rows,) = in_database(database_url, job_id)
    assert (job.token, job.attempts) == (2, 1)
    assert len(rows) == done["progress"]["rollouts_total"]


def test_a_job_survives_a_database_that_goes_away(spawn, postgres):
    """Meanwhile /generate works, /committor answers 503, and nothing is lost."""
    server = spawn("--database", postgres.create(), *QUEUED, "--lease-seconds", "600").wait_for(200)
    job_id = queue(server, HORIZON)
    reached(server, job_id, lambda job: job["progress"]["rollouts"] > 0)
    postgres.pause()
    try:
        refused = server.client.get(f"/committor/{job_id}")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "database_unavailable")
        sample = server.generate({"prompt": "a", "gen_length": 4, "policy": {"gate": {"source": "recorded"}}})
        assert "cannot be read" in sample["samples"][0]["gate"]["fallback_reason"]
        time.sleep(1.5)
    finally:
        postgres.resume()
    done = succeeded(server, job_id)
    assert done["progress"]["rollouts"] == done["progress"]["rollouts_total"]


def test_cancelling_limits_keys_and_waiting_callers(spawn, tmp_path):
    (tmp_path / "keys").write_text("ann:ann-ann-ann-ann-ann\nbob:bob-bob-bob-bob-bob\n")
    server = spawn(
        *("--api-keys-file", str(tmp_path / "keys"), "--committor-jobs-per-key", "2", "--committor-inline-rows", "100"),
        *("--committor-wait-seconds", "0.01", "--drain-seconds", "1"),
    ).wait_for(200)
    ann, bob = ({"headers": {"Authorization": f"Bearer {'-'.join([name] * 5)}"}} for name in ("ann", "bob"))
    first, second = queue(server, ENDLESS, **ann), queue(server, ENDLESS, **ann)
    refused = server.client.post("/committor", json=ENDLESS, **ann)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    assert "limit 2" in error_of(refused)["message"]

    for method in ("GET", "DELETE"):
        reply = server.client.request(method, f"/committor/{first}", **bob)
        assert (reply.status_code, error_of(reply)["code"]) == (404, "not_found")
    assert server.client.get("/committor", **bob).json()["data"] == []
    assert [job["id"] for job in server.client.get("/committor", **ann).json()["data"]] == [second, first]
    assert server.client.get(f"/committor/{first}").status_code == 401

    # a long job runs: /generate is answered all the same
    reached(server, first, lambda job: job["status"] == "running", **ann)
    body = {"constraint": KEYWORDS, "gen_length": 4, "policy": {"gate": {"source": "recorded"}}}
    assert server.client.post("/generate", json=body, **bob).status_code == 200
    assert follow(server, first, **ann)["status"] == "running"

    # a small measurement that takes longer than its caller waits becomes a job
    small = {**STATE, "rollouts": 1}
    mine = queue(server, small, **bob)
    assert follow(server, mine, **bob)["status"] in {"running", "succeeded"}

    for job_id in (first, second):
        assert server.client.delete(f"/committor/{job_id}", **ann).json()["status"] == "cancelled"
    assert queue(server, {**STATE, "rollouts": 20}, **ann)  # room again, and the slot is free
    statuses = wait_until(lambda: listed(server, **ann), lambda seen: seen[0] == "succeeded", "the last job")
    assert statuses == ["succeeded", "cancelled", "cancelled"]
    assert server.stop() == 0


def test_a_server_without_slots_leaves_jobs_to_others(spawn, tmp_path):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    server = spawn("--database", url, *QUEUED, "--committor-slots", "0").wait_for(200)
    job_id = queue(server, STATE)
    time.sleep(2.5)
    assert follow(server, job_id)["status"] == "queued"
    assert server.metrics()['astargate_committor_jobs{status="queued"}'] == 1
    server.stop()
    assert succeeded(spawn("--database", url).wait_for(200), job_id)["result"]["points"]


def test_a_caller_who_waits_when_the_server_drains_is_told_where_to_look(spawn, tmp_path):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    server = spawn("--database", url, "--drain-seconds", "0.5", "--committor-inline-rows", "1000000").wait_for(200)
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/committor", json=ENDLESS, timeout=600))
    )
    asking.start()
    wait_until(lambda: listed(server), lambda seen: seen == ["running"], "the measurement")
    assert server.stop() == 0
    asking.join()
    (answer,) = answers
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")


def test_a_database_that_cannot_be_opened_ends_the_server(spawn):
    server = spawn("--database", "postgresql://nobody:secret@127.0.0.1:1/none")
    assert server.process.wait(600) == 1
    log = server.log.read_text()
    assert "the database could not be opened" in log
    assert "secret" not in log


def test_a_database_in_memory_is_enough(spawn):
    """What a read-only place without a temporary folder falls back to."""
    server = spawn("--database", "sqlite://", *QUEUED).wait_for(200)
    assert succeeded(server, queue(server, STATE))["result"]["points"]
