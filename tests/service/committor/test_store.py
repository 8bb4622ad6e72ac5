"""Jobs in the database: no job has two holders, what an old holder writes is refused, callers see their own alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, text, update

from service.committor.store import JobStore, NewJob, QueueLimitError, QueueLimits
from service.committor.tables import JOBS, RolloutRecord, UnknownEntryError
from service.storage.database import open_database
from service.storage.leases import MAX_ATTEMPTS, LeaseLostError

MODEL = "hash"
LIMITS = QueueLimits(per_key=100, total=200)
LEASE = 600.0
"""Seconds: none runs out while a test runs, but where the test says so."""


@pytest.fixture
def stores(database):
    """Two servers on one database."""
    return JobStore(database, "one", LEASE), JobStore(database, "two", LEASE)


def new(key_id="key", rows=10, model=MODEL):
    return NewJob(key_id, {"seed": 1}, "mini", model, rollouts_total=4, rows_estimated=rows)


def outcome(index, arm="base"):
    return RolloutRecord(step=1, arm=arm, rollout=index, satisfied=index % 2 == 0, score=0.5, rows=3)


def finish(store, job, result=None):
    with store.finishing(job, result or {}):
        pass


def test_a_job_from_arrival_to_result(stores):
    store, _ = stores
    added = store.add(new(), LIMITS)
    assert (added.status, added.rollouts_done, added.result) == ("queued", 0, None)
    job = store.claim(MODEL)
    assert (job.id, job.status, job.token, job.owner) == (added.id, "running", 1, "one")
    store.save_recording(job, {"states": []}, 7)
    store.save_rollouts(job, [outcome(0), outcome(1)])
    store.save_rollouts(job, [outcome(2)])
    stored = store.get("key", job.id)
    assert (stored.rollouts_done, stored.rows_done, stored.recording) == (3, 16, {"states": []})
    assert store.rollouts(job) == [outcome(0), outcome(1), outcome(2)]
    finish(store, job, {"x": 1.5})
    stored = store.get("key", job.id)
    assert (stored.status, stored.result, stored.rollouts_total) == ("succeeded", {"x": 1.5}, 3)
    assert stored.created <= stored.started <= stored.finished
    assert store.claim(MODEL) is None


def test_many_servers_claim_each_job_once(database):
    store = JobStore(database, "any", LEASE)
    wanted = {store.add(new(), LIMITS).id for _ in range(24)}
    servers = [JobStore(database, f"server{index}", 60) for index in range(6)]

    def drain(server):
        jobs = []
        while (job := server.claim(MODEL)) is not None:
            jobs.append((job.id, job.token))
        return jobs

    with ThreadPoolExecutor(6) as pool:
        claimed = [job for jobs in pool.map(drain, servers) for job in jobs]
    assert sorted(claimed) == sorted((job_id, 1) for job_id in wanted)


def test_a_job_is_claimed_by_a_server_of_its_model_oldest_first(stores):
    store, _ = stores
    store.add(new(model="other"), LIMITS)
    first, second = store.add(new(), LIMITS), store.add(new(), LIMITS)
    assert [store.claim(MODEL).id, store.claim(MODEL).id] == [first.id, second.id]
    assert store.claim(MODEL) is None


def test_a_lease_that_runs_out_is_taken_over_and_the_old_holder_writes_nothing(stores):
    old, young = stores
    old.add(new(), LIMITS)
    job = old.claim(MODEL)
    old.save_rollouts(job, [outcome(0)])
    assert young.claim(MODEL) is None
    expire(old)
    taken = young.claim(MODEL)
    assert (taken.id, taken.token, taken.owner, taken.started) == (job.id, 2, "two", job.started)
    for write in (
        lambda: old.heartbeat(job),
        lambda: old.save_rollouts(job, [outcome(1)]),
        lambda: old.save_recording(job, {}, 1),
        lambda: old.fail(job, "no"),
        lambda: old.release(job),
        lambda: finish(old, job),
    ):
        with pytest.raises(LeaseLostError):
            write()
    assert young.rollouts(taken) == [outcome(0)]
    assert young.get("key", job.id).status == "running"
    finish(young, taken)
    assert young.get("key", job.id).status == "succeeded"


def test_heartbeats_keep_a_job(stores):
    old, young = stores
    old.add(new(), LIMITS)
    job = old.claim(MODEL)
    for _ in range(4):
        expire(old)
        old.heartbeat(job)
        assert young.claim(MODEL) is None


def test_a_released_job_is_free_at_once(stores):
    old, young = stores
    old.add(new(), LIMITS)
    job = old.claim(MODEL)
    old.release(job)
    assert young.get("key", job.id).status == "queued"
    assert young.claim(MODEL).id == job.id


def test_what_is_kept_again_counts_once(stores):
    """A connection that breaks at the commit leaves it open whether the write was done."""
    store, _ = stores
    store.add(new(), LIMITS)
    job = store.claim(MODEL)
    for _ in range(2):
        store.save_recording(job, {"states": []}, 7)
        store.save_rollouts(job, [outcome(0), outcome(0, "guided")])
    store.save_rollouts(job, [outcome(0), outcome(1)])
    stored = store.get("key", job.id)
    assert (stored.rollouts_done, stored.rows_done) == (3, 7 + 3 * 3)
    assert store.rollouts(job) == [outcome(0), outcome(1), outcome(0, "guided")]


def test_a_job_that_stops_every_server_is_given_up(stores):
    store, _ = stores
    added = store.add(new(), LIMITS)
    for attempt in range(MAX_ATTEMPTS):
        assert store.claim(MODEL).attempts == attempt + 1
        expire(store)
    assert store.claim(MODEL) is None
    stored = store.get("key", added.id)
    assert (stored.status, str(MAX_ATTEMPTS) in stored.error) == ("failed", True)


def expire(store):
    with store.database.write() as connection:
        connection.execute(update(JOBS).values(lease_until=0.0))


def test_cancelling(stores):
    store, other = stores
    queued, running = store.add(new(), LIMITS), store.add(new(), LIMITS, claimed=True)
    assert store.cancel("another key", queued.id) is None
    assert other.cancel("key", queued.id).status == "cancelled"
    assert other.cancel("key", running.id).status == "cancelled"
    with pytest.raises(LeaseLostError):
        store.heartbeat(running)
    assert store.claim(MODEL) is None
    done = store.add(new(), LIMITS, claimed=True)
    finish(store, done)
    assert store.cancel("key", done.id).status == "succeeded"
    assert store.cancel("key", "com-nothing") is None


def test_limits_count_unfinished_jobs(stores):
    store, _ = stores
    limits = QueueLimits(per_key=2, total=3)
    store.add(new("a", rows=100), limits)
    ended = store.add(new("a", rows=50), limits)
    with pytest.raises(QueueLimitError, match=r"2 jobs of yours .* \(limit 2\)") as caught:
        store.add(new("a"), limits)
    assert caught.value.rows_ahead == 150
    store.add(new("b"), limits)
    with pytest.raises(QueueLimitError, match=r"3 jobs of all callers .* \(limit 3\)"):
        store.add(new("c"), limits)
    store.cancel("a", ended.id)
    store.add(new("c"), limits)
    assert store.counts() == {"queued": 3}


def test_pages_hold_a_key_s_own_jobs_newest_first_each_once(stores):
    store, _ = stores
    mine = [store.add(new("a"), LIMITS).id for _ in range(5)]
    other = store.add(new("b"), LIMITS).id
    store.cancel("a", mine[2])
    seen, after = [], None
    while page := store.page("a", 2, after):
        seen += [job.id for job in page]
        after = page[-1].id
    assert sorted(seen) == sorted(mine)
    created = [store.get("a", job_id).created for job_id in seen]
    assert created == sorted(created, reverse=True)
    assert [job.id for job in store.page("a", 9, status="cancelled")] == [mine[2]]
    for unknown in (other, "com-nothing", "com-\0"):
        with pytest.raises(UnknownEntryError):
            store.page("a", 9, after=unknown)
        assert store.get("a", unknown) is None
        assert store.cancel("a", unknown) is None
    assert store.page("a", 9, after=seen[-1]) == []


def test_old_jobs_are_forgotten_with_their_outcomes(stores):
    store, _ = stores
    done = store.add(new(), LIMITS, claimed=True)
    store.save_rollouts(done, [outcome(0)])
    finish(store, done)
    running = store.add(new(), LIMITS, claimed=True)
    assert store.purge(3600, 100) == 0
    assert store.purge(-1, 100) == 1
    assert store.get("key", done.id) is None
    assert store.rollouts(done) == []
    assert store.get("key", running.id) is not None


def test_of_a_keys_ended_jobs_the_newest_are_kept(stores):
    store, _ = stores
    ended = {key: [store.add(new(key), LIMITS, claimed=True) for _ in range(4)] for key in ("a", "b")}
    for jobs in ended.values():
        for job in jobs:
            finish(store, job)
    waiting = store.add(new("a"), LIMITS)
    assert store.purge(3600, 3) == 2
    for key, jobs in ended.items():
        assert [store.get(key, job.id) is not None for job in jobs] == [False, True, True, True]
    assert store.get("a", waiting.id) is not None


def test_a_damaged_row_holds_up_no_other(tmp_path, caplog):
    """SQLite keeps whatever is written into a JSON column: a row that cannot be read is given up."""
    database = open_database(f"sqlite:///{tmp_path / 'jobs.db'}")
    store = JobStore(database, "one", LEASE)
    damaged, whole = (store.add(new(), LIMITS) for _ in range(2))
    with database.write() as connection:
        connection.execute(text("UPDATE committor_jobs SET request = '{' WHERE id = :id"), {"id": damaged.id})
    claimed = store.claim(MODEL)
    assert claimed is not None
    assert claimed.id == whole.id
    with database.read() as connection:
        row = connection.execute(select(JOBS.c.status, JOBS.c.error).where(JOBS.c.id == damaged.id)).one()
    assert row.status == "failed"
    assert "damaged" in row.error
    assert damaged.id in caplog.text
    assert store.claim(MODEL) is None
    database.close()
