"""Repair from the peak of q0: the step that the caller has measured, or the end of the run and why."""

from __future__ import annotations

import pytest

from decoding.gates.builtin import BuiltinGates
from decoding.request.job import regime_of
from service.committor.horizons import HorizonStore, Measured
from service.config.settings import Settings
from service.generation.prepare import prepare
from service.schemas.generate import GenerateRequest
from service.storage.database import open_database
from tests.service.committor.test_measurements import measure
from tests.service.process import error_of
from tests.shipped import mini

L = 8
NEVER_MET = {"type": "letter_frequency", "letter": "q", "relation": "at_least", "count": 60}
GATES = ({"source": "fraction", "fraction": 0.75}, {"source": "recorded"}, {"source": "never"})


def body(prompt, anchor, gate=GATES[0], **policy):
    """One round of repair, whatever the text, that may reopen nothing committed before its anchor but one position."""
    repair = {"anchor": anchor, "reopen": 1, "max_rounds": 1}
    policy = {"preset": "reopen_repair", "gate": gate, "repair": repair, **policy}
    return {"prompt": prompt, "constraint": NEVER_MET, "policy": policy, "gen_length": L, "seed": 3, "trace": True}


def record(server, prompt, peak, step=5):
    """The horizon of `body(prompt)` as a measurement of the caller's would have left it."""
    request = GenerateRequest.model_validate(body(prompt, "end"))
    model = mini()
    job = prepare(request, model, BuiltinGates(), Settings()).job
    measured = Measured(job, regime_of(job, model.spec.hash), step, peak, "handoff", 24, prompt, "com-none")
    database = open_database(f"sqlite:///{server.log.resolve()}.db")
    with database.write() as connection:
        HorizonStore(database).record(connection, "anonymous", measured)
    database.close()


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate["source"])
def test_a_recorded_peak_is_where_repair_begins(server, gate):
    prompt = f"peak of {gate['source']}"
    for peak in (2, 6):
        record(server, prompt, peak)
        answer = server.generate(body(prompt, "peak", gate))
        (sample,) = answer["samples"]
        assert answer["policy"]["repair"]["anchor"] == peak / L
        assert (sample["repair"]["rounds"], sample["repair"]["anchor_reason"]) == (1, None)
        (resumed,) = sample["trace"]["resumed"]
        mask = mini().spec.mask_id
        assert resumed["canvas"].count(mask) == L - peak + 1
        plain = server.generate(body(prompt, peak / L, gate))
        assert plain["samples"] == [sample]
        assert server.generate(body(prompt, "end", gate))["samples"][0]["trace"]["resumed"] != [resumed]


def test_where_no_peak_is_known_repair_begins_at_the_end_and_says_why(server):
    record(server, "known", 2)
    record(server, "older", None)
    for prompt, policy, reason in (
        ("unknown", {}, "no horizon is recorded"),
        ("known", {"tail_width": 2}, "another setting (it has another tail_width)"),
        ("older", {}, "measured before the peak"),
    ):
        answer = server.generate(body(prompt, "peak", **policy))
        (sample,) = answer["samples"]
        assert reason in sample["repair"]["anchor_reason"]
        assert answer["policy"]["repair"]["anchor"] == "end"
        (plain,) = server.generate(body(prompt, "end", **policy))["samples"]
        assert plain["repair"].pop("anchor_reason") is None
        assert sample["repair"].pop("anchor_reason")
        assert sample == plain


def test_a_measured_horizon_has_its_peak(server):
    keywords = {"type": "keywords", "keywords": ["dog"]}
    fields = {"prompt": "measured peak", "constraint": keywords, "block_length": 6}
    job = measure(server, {**fields, "gen_length": 6, "horizon": True, "rollouts": 3, "seed": 3})
    best = max(job["result"]["points"], key=lambda point: (point["q0"]["successes"], point["step"]))
    assert job["result"]["horizon"]["peak"] == best["step"]
    (listed,) = [h for h in server.client.get("/committor/horizons").json()["data"] if h["job"] == job["id"]]
    assert listed["peak"] == best["step"]
    policy = {"preset": "reopen_repair", "repair": {"anchor": "peak"}}
    asked = {**fields, "policy": policy, "seed": 5}
    assert server.generate({**asked, "gen_length": 6})["policy"]["repair"]["anchor"] == best["step"] / 6
    reply = server.client.post("/v1/completions", json={**asked, "model": "mini", "max_tokens": 6})
    assert reply.status_code == 200, reply.text
    assert reply.json()["policy"]["repair"]["anchor"] == best["step"] / 6


@pytest.mark.parametrize("anchor", ["start", "Peak", [], {"peak": 1}])
def test_another_word_is_refused_by_name(server, anchor):
    reply = server.client.post("/generate", json=body("a", anchor))
    assert reply.status_code == 422
    error = error_of(reply)
    assert error["param"] == "policy.repair.anchor"
    assert error["message"] == "policy.repair.anchor must be 'end', 'peak' or a fraction of the steps"
