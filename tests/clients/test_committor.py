"""Measurements of a real server, waited for, followed and cancelled."""

from __future__ import annotations

import asyncio

import pytest

from astargate_client import AsyncClient, JobCancelledError, JobTimeoutError, NotFoundError, keywords

SMALL = {"constraint": keywords("dog"), "gen_length": 8, "steps": 8, "rollouts": 2, "seed": 3}
LARGE = {"constraint": keywords("dog", "ball"), "gen_length": 32, "steps": 512, "horizon": True, "rollouts": 2}


def test_a_state_is_measured(client):
    job = client.committor.measure(state="a dog [MASK] [MASK]", **SMALL)
    (point,) = job.result.points
    assert job.status == "succeeded"
    assert 0 <= point.q0.low <= point.q0.estimate <= point.q0.high <= 1
    assert point.value.estimate == pytest.approx(point.qg.estimate - point.q0.estimate)
    assert client.committor.get(job.id).result == job.result
    assert client.committor.measure(state=0.5, **SMALL).result.points[0].step == 4
    assert job.id in repr(job)
    assert "q0" in job._repr_html_()


def test_a_job_is_followed_cancelled_and_listed(client):
    job = client.committor.submit(**LARGE)
    seen = []
    with pytest.raises(JobTimeoutError) as caught:
        client.committor.wait(job, on_progress=seen.append, timeout=3.0)
    assert caught.value.job.id == job.id
    assert {one.id for one in seen} == {job.id}
    assert len(seen) >= 2
    assert client.committor.cancel(job).id == job.id
    with pytest.raises(JobCancelledError):
        client.committor.wait(job.id, timeout=600)
    assert job.id in {one.id for one in client.committor.list(limit=5).data}
    assert len(client.committor.list(limit=1).data) == 1
    assert client.committor.list(status="cancelled").data[0].id == job.id


def test_a_horizon_is_measured_kept_and_forgotten(client, server):
    async def measure():
        async with AsyncClient(server.url) as other:
            begun = await other.committor.submit(horizon=True, **SMALL)
            return await other.committor.wait(begun)

    job = asyncio.run(measure())
    assert job.result.horizon is not None
    assert len(job.result.points) > 1
    kept = next(one for one in client.committor.horizons().data if one.job == job.id)
    client.committor.forget(kept.id)
    assert kept.id not in {one.id for one in client.committor.horizons().data}
    with pytest.raises(NotFoundError):
        client.committor.forget(kept.id)


def test_an_unknown_job_is_not_found(client):
    for call in (client.committor.get, client.committor.cancel):
        with pytest.raises(NotFoundError):
            call("no such/job")
