"""Parts that fail beneath a server: its model, a predicate, its disk, the database's file. What is whole goes on."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.service import faults
from tests.service.process import PATIENCE, ServerProcess, error_of, wait_until

SMALL = {"prompt": "a dog", "gen_length": 8, "steps": 4, "policy": {"preset": "base"}}
LONG = {"prompt": "a dog", "gen_length": 64, "steps": 4096, "policy": {"preset": "full_cfg"}}
JUDGED = {**SMALL, "constraint": {"type": "keywords", "keywords": ["dog"]}}
JOB = {"constraint": JUDGED["constraint"], "state": {"fraction": 0.5}, "gen_length": 12, "rollouts": 4}
NOISE = b"not a database\n" * 4096


def status(process: ServerProcess, body: dict, path: str = "/generate") -> tuple[int, str | None]:
    """Status of an answer, and the code of an error."""
    reply = process.client.post(path, json=body)
    return reply.status_code, None if reply.is_success else error_of(reply)["code"]


def test_an_engine_that_ends_ends_the_server_and_leaves_no_client_waiting(spawn):
    """Only a new process can decode again; the operator, or a supervisor, starts it."""
    process: ServerProcess = spawn(fault=faults.model_exits).wait_for(200)
    with ThreadPoolExecutor(3) as pool:
        plain = [pool.submit(httpx.post, f"{process.url}/generate", json=LONG, timeout=PATIENCE) for _ in range(2)]
        stream = pool.submit(httpx.post, f"{process.url}/generate", json={**LONG, "stream": True}, timeout=PATIENCE)
        process.wait_running(3)
        process.break_now()
        for each in plain:
            assert (each.result().status_code, error_of(each.result())["code"]) == (500, "internal_error")
        assert "event: error" in stream.result().text
    assert process.process.wait(PATIENCE) == 1
    assert "the engine's thread has ended" in process.log.read_text()


def test_a_model_that_fails_is_answered_for_and_used_again(spawn):
    process: ServerProcess = spawn(fault=faults.model_raises).wait_for(200)
    process.break_now()
    for _ in range(2):
        assert status(process, SMALL) == (500, "internal_error")
    process.mend_now()
    assert status(process, SMALL) == (200, None)
    assert process.stop() == 0


def test_a_predicate_that_ends_its_thread_fails_its_own_request_alone(spawn):
    process: ServerProcess = spawn(fault=faults.predicate_exits).wait_for(200)
    process.break_now()
    for _ in range(2):
        assert status(process, JUDGED) == (500, "internal_error")
    assert status(process, SMALL) == (200, None)
    process.mend_now()
    assert status(process, JUDGED) == (200, None)
    assert process.stop() == 0


@pytest.mark.parametrize("fault", [faults.clock_ahead, faults.clock_back], ids=["ahead", "back"])
def test_a_clock_that_jumps_ends_no_deadline_no_lease_and_no_limit(spawn, fault):
    """What a server waits for is measured with a clock that nobody sets; leases are the database's."""
    options = ("--committor-inline-rows", "0", "--lease-seconds", "600", "--key-requests-per-minute", "600")
    process: ServerProcess = spawn(*options, fault=fault).wait_for(200)
    running = process.client.post("/committor", json={**JOB, "gen_length": 16, "rollouts": 80}).json()["id"]
    wait_until(
        lambda: process.client.get(f"/committor/{running}").json(),
        lambda job: job["progress"]["rollouts"] > 0,
        "a first continuation",
    )
    process.break_now()
    assert status(process, {**SMALL, "deadline_s": 60}) == (200, None)
    assert status(process, {**LONG, "deadline_s": 0.2}) == (504, "deadline_exceeded")
    with process.client.stream("POST", "/generate", json={**SMALL, "stream": True, "deadline_s": 60}) as stream:
        assert "event: done" in "".join(stream.iter_text())
    job = wait_until(
        lambda: process.client.get(f"/committor/{running}").json(),
        lambda job: job["status"] not in ("queued", "running"),
        "the end of the job",
    )
    assert (job["status"], job["progress"]["rollouts"]) == ("succeeded", job["progress"]["rollouts_total"])
    process.mend_now()
    assert status(process, JOB, "/committor")[0] == 202
    assert process.client.get("/health/ready").status_code == 200
    assert process.stop() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
def test_a_full_disk_refuses_jobs_and_nothing_else(spawn, tmp_path):
    """The limit on the size of a file is what a disk without room is to SQLite."""
    file = tmp_path / "jobs.db"
    process: ServerProcess = spawn("--database", f"sqlite:///{file}").wait_for(200)
    assert status(process, JOB, "/committor")[0] in {200, 202}
    largest = max(path.stat().st_size for path in tmp_path.glob("jobs.db*"))
    before = resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    for _ in range(2):
        assert status(process, {**JOB, "prompt": "x" * 90_000}, "/committor") == (503, "database_unavailable")
    assert status(process, JUDGED) == (200, None)
    health = process.client.get("/health/ready")
    assert (health.status_code, health.json()["database"]) == (200, "unreachable")
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, before)
    wait_until(lambda: status(process, JOB, "/committor")[0], lambda seen: seen in {200, 202}, "a job")
    assert process.client.get("/health/ready").json()["database"] == "reachable"
    assert process.stop() == 0


def test_a_database_file_that_turns_to_noise_refuses_jobs_and_nothing_else(spawn, tmp_path):
    file = tmp_path / "jobs.db"
    process: ServerProcess = spawn("--database", f"sqlite:///{file}").wait_for(200)
    assert status(process, JOB, "/committor")[0] in {200, 202}
    for path in tmp_path.glob("jobs.db*"):
        with path.open("r+b") as damaged:
            damaged.write(NOISE[: os.path.getsize(path)])
    for path in ("/committor", "/committor/horizons"):
        reply = process.client.get(path)
        assert (reply.status_code, error_of(reply)["code"]) == (503, "database_unavailable")
    assert status(process, JOB, "/committor") == (503, "database_unavailable")
    assert status(process, JUDGED) == (200, None)
    assert process.stop() == 0


def test_a_server_whose_database_is_noise_says_so_and_ends(spawn, tmp_path):
    (tmp_path / "jobs.db").write_bytes(NOISE)
    process = spawn("--database", f"sqlite:///{tmp_path / 'jobs.db'}")
    assert process.process.wait(PATIENCE) == 1
    assert "the database could not be opened" in process.log.read_text()
