"""Measured horizons: each serves its key, prompt and setting alone, and the gate made of it says what it knows."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from decoding.gates.protocol import GateView
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.request.job import Job, Sampling, regime_of
from decoding.sampling.noise import NoiseKey
from service.committor.horizons import CallerHorizons, HorizonStore, Measured, RecordedGate
from service.committor.tables import HORIZONS, UnknownEntryError
from service.generation.repair_anchor import PeakChoice
from service.storage.errors import DatabaseError

MODEL = "hash"


def job_for(prompt=(5, 6), seed=0, steps=8, gate=None, **policy):
    resolved = resolve_policy("handoff", {"gate": gate or GateSettings("recorded"), **policy})
    return Job(
        prompt, 8, steps, resolved, NoiseKey(seed), sampling=Sampling(), family="commongen-k3", constraint={"type": "x"}
    )


def record(horizons, key_id, job, step, prompt="a prompt", peak=5):
    measured = Measured(job, regime_of(job, MODEL), step, peak, "handoff", 24, prompt, "com-1")
    with horizons.database.write() as connection:
        horizons.record(connection, key_id, measured)


def choice(horizons, key_id, job, model=MODEL):
    return CallerHorizons(horizons, key_id).choice(job, regime_of(job, model))


def test_a_horizon_serves_its_key_prompt_and_setting_alone(database):
    horizons = HorizonStore(database)
    job = job_for()
    assert "no horizon is recorded" in choice(horizons, "a", job).fallback_reason
    record(horizons, "a", job, 3)
    gate = choice(horizons, "a", job_for(seed=9, gate=GateSettings("recorded"))).gate
    assert (gate.planned_step(8), gate.checkpoints(8), gate.handoff_fate) == (3, {3}, "handoff")
    assert choice(horizons, "b", job).gate is None
    assert choice(horizons, "a", job_for(prompt=(5, 7))).gate is None
    for other, named in (
        (job_for(steps=9), "steps"),
        (job_for(tail_width=2), "tail_width"),
        (job_for(guidance_scale=3.0), "guidance_scale"),
    ):
        chosen = choice(horizons, "a", other)
        assert chosen.gate is None
        assert named in chosen.fallback_reason
        assert chosen.nearest_regime["steps"] == 8
    chosen = choice(horizons, "a", job, model="another")
    assert (chosen.gate, "model_hash" in chosen.fallback_reason) == (None, True)
    # a field that no regime names still keeps settings apart
    assert choice(horizons, "a", job_for(guided_width=2)).gate is None


def test_a_peak_serves_its_setting_alone(database):
    horizons = HorizonStore(database)
    job = job_for()

    def peak(job, key_id="a"):
        return CallerHorizons(horizons, key_id).peak(job, regime_of(job, MODEL))

    assert (peak(job).step, "no horizon is recorded" in peak(job).reason) == (None, True)
    record(horizons, "a", job, 3)
    assert peak(job_for(seed=9, gate=GateSettings("fraction", fraction=0.5))) == PeakChoice(5)
    assert (peak(job, "b").step, peak(job_for(prompt=(5, 7))).step) == (None, None)
    other = peak(job_for(tail_width=2))
    assert (other.step, "tail_width" in other.reason) == (None, True)
    record(horizons, "a", job, None, peak=2)  # censored or not, a newer one takes its place
    assert peak(job) == PeakChoice(2)
    with database.write() as connection:
        connection.execute(update(HORIZONS).values(peak=None))
    assert (peak(job).step, "measures it again" in peak(job).reason) == (None, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "read", unreadable)
        assert (peak(job).step, "cannot be read" in peak(job).reason) == (None, True)


def unreadable():
    raise DatabaseError("gone")


def test_a_newer_measurement_takes_the_older_one_s_place(database):
    horizons = HorizonStore(database)
    record(horizons, "a", job_for(), 3)
    record(horizons, "a", job_for(), None)
    (kept,) = horizons.page("a", 9)
    assert (kept.step, kept.rollouts, kept.constraint_spec) == (None, 24, {"type": "x"})
    gate = choice(horizons, "a", job_for()).gate
    assert gate.planned_step(8) == 8


def test_horizons_are_listed_in_pages_and_forgotten(database):
    horizons = HorizonStore(database)
    for step in range(5):
        record(horizons, "a", job_for(prompt=(step,)), step)
    record(horizons, "b", job_for(), 1)
    seen, after = [], None
    while page := horizons.page("a", 2, after):
        seen += [horizon.step for horizon in page]
        after = page[-1].id
    assert sorted(seen) == [0, 1, 2, 3, 4]
    first = horizons.page("a", 1)[0]
    assert not horizons.forget("b", first.id)
    assert horizons.forget("a", first.id)
    assert not horizons.forget("a", first.id)
    assert not horizons.forget("a", "hor-\0")
    assert len(horizons.page("a", 9)) == 4
    with pytest.raises(UnknownEntryError):  # an empty page would hide the four
        horizons.page("a", 9, after=first.id)


def test_a_prompt_with_a_nul_is_kept_by_every_database(database):
    horizons = HorizonStore(database)
    record(horizons, "a", job_for(), 3, prompt="a\0b")
    assert [horizon.prompt for horizon in horizons.page("a", 9)] == ["a\ufffdb"]


def test_the_recorded_gate_says_what_it_knows():
    views = [GateView(None, step, 2, 4, ()) for step in (2, 3, 4)]
    decisions = RecordedGate(3, 12, "handoff", "hor-1").decide(views)
    assert [decision.handoff for decision in decisions] == [False, True, True]
    assert {decision.predicted_horizon for decision in decisions} == {0.25}
    (censored,) = RecordedGate(None, 12, "failure", "hor-1").decide(views[:1])
    assert (censored.handoff, censored.predicted_horizon, censored.handoff_fate) == (False, None, "failure")
