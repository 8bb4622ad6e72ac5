"""POST /committor over real sockets: estimates, intervals, horizons that /generate then uses, and what is refused."""

from __future__ import annotations

import time

import jsonschema
import pytest

from decoding.models.registry import load_model
from decoding.models.tools.make_random import make_random
from decoding.sampling.block_schedule import step_at
from gate_models.committor.choices import FREEZE_GRID
from gate_models.statistics.intervals import newcombe, proportion
from service.committor.plan import _state_tokens
from service.schemas.committor import StateRequest
from tests.service.process import error_of, total, wait_until
from tests.shipped import mini

KEYWORDS = {"type": "keywords", "keywords": ["dog", "ball"]}
L, N = 6, 3
SMALL = {"constraint": KEYWORDS, "gen_length": L, "rollouts": N, "seed": 3}
MET = "dog ball [MASK] [MASK] [MASK] [MASK]"
LOST = "cat cat cat cat cat [MASK]"
HARD = {"type": "keyword_frequency", "keyword": "dog", "relation": "at_least", "count": 5}


def measure(server, body, statuses=(200, 202)):
    """The measurement once it is done, also where a slow machine made a job of it."""
    reply = server.client.post("/committor", json=body)
    assert reply.status_code in statuses, reply.text
    job = reply.json()
    while job["status"] in {"queued", "running"}:
        time.sleep(0.1)
        job = server.client.get(f"/committor/{job['id']}").json()
    return job


def points(job):
    return job["result"]["points"]


def horizon(server, **fields):
    return measure(server, {**SMALL, "horizon": True, **fields})


def recorded(server, **fields):
    policy = {"gate": {"source": "recorded"}, **fields.pop("policy", {})}
    body = {"constraint": KEYWORDS, "gen_length": L, "seed": 5, "policy": policy, **fields}
    return server.generate(body)["samples"][0]


def test_a_state_that_is_decided_has_a_committor_of_one_or_nought(server):
    for text, rate in ((MET, 1.0), (LOST, 0.0)):
        job = measure(server, {**SMALL, "state": {"text": text}}, statuses=(200,))
        (point,) = points(job)
        assert (job["status"], job["progress"]["rollouts"]) == ("succeeded", 2 * N)
        assert (point["q0"]["estimate"], point["qg"]["estimate"], point["value"]["estimate"]) == (rate, rate, 0.0)
        masked = text.count("[MASK]")
        assert (point["masked"], point["step"]) == (masked, L - masked)
        wilson, difference = proportion(int(rate * N), N), newcombe((int(rate * N), N), (int(rate * N), N))
        assert (point["q0"]["low"], point["q0"]["high"]) == (wilson.low, wilson.high)
        assert (point["value"]["low"], point["value"]["high"]) == (difference.low, difference.high)
        assert job["result"]["forward_evaluations"] == N * masked * 3


def test_text_and_token_ids_name_the_same_state(server):
    words = "dog [MASK] [MASK] ball [MASK] [MASK]"
    by_text = measure(server, {**SMALL, "state": {"text": words}})
    generated = server.generate({"constraint": KEYWORDS, "gen_length": L, "trace": True, "seed": 1})
    assert generated["samples"][0]["trace"]["tokens"]
    model = mini()
    ids = [
        model.spec.mask_id if word == "[MASK]" else token
        for word in words.split()
        for token in ([0] if word == "[MASK]" else model.codec.encode(word))
    ]
    by_ids = measure(server, {**SMALL, "state": {"tokens": ids}})
    assert by_ids["result"] == by_text["result"]
    # what the text leaves open at its end is undecided
    assert measure(server, {**SMALL, "state": {"text": "dog [MASK] [MASK] ball"}})["result"] == by_text["result"]
    assert measure(server, {**SMALL, "state": {"text": words}, "seed": 4})["request"]["seed"] == 4


def test_without_noise_more_continuations_are_no_more_evidence(server):
    job = measure(server, {**SMALL, "temperature": 0.0, "state": {"text": "[mask] [Mask] [MASK]"}})
    (point,) = points(job)
    assert point["masked"] == L
    for estimate in (point[name] for name in ("q0", "qg", "value", "graded_value")):
        assert estimate["method"] == "deterministic"
        assert estimate["low"] == estimate["estimate"] == estimate["high"]
    assert point["q0"]["successes"] in (0, N)


@pytest.mark.parametrize("arch", ["llada", "dream"])
def test_spaces_before_masks_are_no_tokens(arch, tmp_path):
    """Tokens of these models bring the space before them; a written one would stand between all masks."""
    model = load_model(str(make_random(arch, tmp_path / arch)))
    mask = model.spec.mask_id
    words = model.codec.encode("a dog"), model.codec.encode(" on"), model.codec.encode("\n")
    state = StateRequest(text="a dog [MASK] [MASK] on [MASK]\n[MASK] ")
    assert _state_tokens(state, model) == [*words[0], mask, mask, *words[1], mask, *words[2], mask]


def test_a_fraction_of_a_guided_run(server):
    job = measure(server, {**SMALL, "state": {"fraction": 0.5}})
    (point,) = points(job)
    step = step_at(0.5, L)
    assert (point["step"], point["masked"], point["committed_fraction"]) == (step, L - step, step / L)
    recorded_run, rollouts = 2 * L, N * 3 * (L - step)
    assert job["result"]["forward_evaluations"] == recorded_run + rollouts == job["progress"]["forward_evaluations"]
    (empty,) = points(measure(server, {**SMALL, "state": {"fraction": 0.0}}))
    assert empty["masked"] == L


def test_a_horizon_and_a_generate_that_hands_off_there(server):
    before = server.wait_idle()
    job = horizon(server)
    result, curve = job["result"], points(job)
    steps = sorted({step_at(fraction, L) for fraction in FREEZE_GRID})
    assert [point["step"] for point in curve] == steps
    assert result["forward_evaluations"] == 2 * L + sum(3 * N * (L - step) for step in steps)
    assert result["forward_evaluations"] <= job["progress"]["estimated_forward_evaluations"]
    for point in curve:
        for arm in ("q0", "qg"):
            assert point[arm]["low"] <= point[arm]["estimate"] == point[arm]["successes"] / N <= point[arm]["high"]
        assert point["value"]["estimate"] == pytest.approx(point["qg"]["estimate"] - point["q0"]["estimate"])
    safe = [p["q0"]["estimate"] >= 0.9 and p["value"]["estimate"] <= 0.1 for p in curve]
    first = next((i for i in range(len(safe)) if all(safe[i:])), None)
    expected = None if first is None else steps[first]
    assert result["horizon"]["step"] == expected
    assert result["horizon"]["censored"] is (expected is None)
    assert result["cross_fitted"]["splits"] == 200
    sample = recorded(server)
    assert sample["gate"]["handoff_step"] == expected
    assert sample["gate"]["decision"] == ("full_cfg" if expected is None else "handoff")
    assert sample["gate"]["handoff_fate"] == result["handoff_fate"]
    assert sample["gate"]["fallback_reason"] is None
    handoff = L if expected is None else expected
    assert sample["forward_evaluations"]["total"] == L + handoff
    (listed,) = [h for h in server.client.get("/committor/horizons").json()["data"] if h["job"] == job["id"]]
    assert (sample["gate"]["version"], listed["step"]) == (listed["id"], expected)
    after = server.wait_idle() - before
    assert after["astargate_committor_rollouts_total"] == job["progress"]["rollouts"] == 2 * N * len(steps)
    assert total(after, "forward_rows_total", purpose="rollout") == result["forward_evaluations"]
    assert total(after, "forward_rows_spent_total") == sample["forward_evaluations"]["total"]

    assert server.client.delete(f"/committor/horizons/{listed['id']}").status_code == 204
    assert recorded(server)["gate"]["handoff_step"] is None
    assert error_of(server.client.delete(f"/committor/horizons/{listed['id']}"))["code"] == "not_found"


def test_the_same_request_measures_the_same(server):
    assert horizon(server)["result"] == horizon(server)["result"]


def test_a_censored_horizon_keeps_guidance_on(server):
    fields = {"constraint": HARD, "policy": {"guidance_scale": 0.05}}
    result = horizon(server, **fields)["result"]
    assert (result["horizon"]["censored"], result["handoff_fate"]) == (True, "failure")
    gate = recorded(server, **fields)["gate"]
    assert (gate["decision"], gate["handoff_fate"], gate["fallback_reason"]) == ("full_cfg", "failure", None)


def test_without_a_horizon_the_response_says_so(server):
    gate = recorded(server, prompt="a prompt that nobody has measured")["gate"]
    assert "no horizon is recorded" in gate["fallback_reason"]
    refused = server.client.post(
        "/generate",
        json={"prompt": "unmeasured", "policy": {"gate": {"source": "recorded"}, "on_fallback": "reject"}},
    )
    assert (refused.status_code, error_of(refused)["code"]) == (422, "gate_unavailable")
    horizon(server, prompt="measured")
    other = recorded(server, prompt="measured", policy={"tail_width": 2})["gate"]
    assert "tail_width" in other["fallback_reason"]
    assert other["nearest_regime"]["tail_width"] == 1


def test_a_horizon_is_measured_with_the_tail_that_is_served(server):
    policy = {"tail_width": 3}
    job = horizon(server, policy=policy, prompt="wide")
    steps = [point["step"] for point in points(job)]
    wide = [2 * (L - step) + -(-(L - step) // 3) for step in steps]
    assert job["result"]["forward_evaluations"] == 2 * L + N * sum(wide)
    assert recorded(server, policy=policy, prompt="wide")["gate"]["fallback_reason"] is None
    assert recorded(server, prompt="wide")["gate"]["fallback_reason"] is not None


def newest(server, wanted):
    """The newest job, once it is as `wanted`."""
    page = {"limit": 1}
    return wait_until(lambda: server.client.get("/committor", params=page).json()["data"], wanted, "the job's state")


def test_a_client_that_leaves_cancels_its_measurement(server):
    body = {"constraint": KEYWORDS, "gen_length": 16, "state": {"fraction": 0.0}, "rollouts": 30, "seed": 1}
    connection = server.open_request(body, "/committor")
    (job,) = newest(server, lambda jobs: jobs and jobs[0]["status"] == "running")
    connection.close()
    (job,) = newest(server, lambda jobs: jobs[0]["status"] in {"cancelled", "succeeded"})
    assert job["status"] == "cancelled"
    rows = [-1.0, total(server.metrics(), "forward_rows_total")]
    while rows[-1] != rows[-2]:  # what was in flight may end its step; all of it would take far longer
        assert len(rows) < 100
        time.sleep(0.5)
        rows.append(total(server.metrics(), "forward_rows_total"))
    assert job["progress"]["rollouts"] < job["progress"]["rollouts_total"]


def test_pages_and_lookups(server):
    for _ in range(2):
        measure(server, {**SMALL, "rollouts": 1, "state": {"text": LOST}})
    first = server.client.get("/committor", params={"limit": 1}).json()
    assert first["has_more"] is True
    (newest,) = first["data"]
    assert newest["result"] is None
    second = server.client.get("/v1/committor", params={"limit": 1, "after": newest["id"]}).json()["data"][0]
    assert second["id"] != newest["id"]
    assert server.client.get(f"/committor/{newest['id']}").json()["result"]["points"]
    assert server.client.delete(f"/committor/{newest['id']}").json()["status"] == "succeeded"
    for method, path in (("GET", "/committor/com-nothing"), ("DELETE", "/committor/com-nothing")):
        assert error_of(server.client.request(method, path))["code"] == "not_found"
    for path in ("/committor", "/committor/horizons"):
        assert error_of(server.client.get(path, params={"after": "com-nothing"}))["param"] == "after"
    assert error_of(server.client.get("/committor", params={"limit": 0}))["param"] == "limit"
    assert error_of(server.client.get("/committor", params={"status": "gone"}))["param"] == "status"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"constraint": None}, "constraint"),
        ({"state": None}, "state"),
        ({"state": {}}, "state"),
        ({"state": {"text": MET, "fraction": 0.1}}, "state"),
        ({"state": {"text": "dog ball dog ball dog ball"}}, "state.text"),
        ({"state": {"text": ""}}, "state.text"),
        ({"state": {"text": "[MASK]" * 9}}, "state.text"),
        ({"state": {"tokens": [0] * L}}, "state.tokens[0]"),
        ({"state": {"tokens": [10**9] * L}}, "state.tokens[0]"),
        ({"state": {"tokens": [-1] * L}}, "state.tokens[0]"),
        ({"state": {"tokens": [True] * L}}, "state.tokens[0]"),
        ({"state": {"fraction": 1.0}}, "state.fraction"),
        ({"state": {"fraction": 0.995}}, "state.fraction"),
        ({"horizon": True}, "state"),
        ({"horizon": True, "state": None, "rollouts": 1}, "rollouts"),
        ({"horizon": True, "state": None, "steps": 1}, "steps"),
        ({"rollouts": 0}, "rollouts"),
        ({"rollouts": 4000}, "rollouts"),
        ({"n": 2}, "n"),
        ({"stream": True}, "stream"),
        ({"policy": {"preset": "base"}}, "policy.preset"),
        ({"policy": {"preset": "full_cfg"}}, "policy.preset"),
        ({"policy": {"guidance_scale": 0.0}}, "policy.guidance_scale"),
        ({"policy": {"gate": {"source": "never"}}}, "policy.gate.source"),
        ({"policy": {"gate": {"fraction": 0.3}}}, "policy.gate.fraction"),
        ({"policy": {"gate": {"source": "recorded", "margin": 0.03}}}, "policy.gate.margin"),
        ({"policy": {"on_fallback": "base"}}, "policy.on_fallback"),
        ({"policy": {"tail_reuse": "prefix"}}, "policy.tail_reuse"),
        ({"policy": {"tail_width": 99}}, "policy.tail_width"),
        ({"prompt": "word " * 9000}, "prompt"),
    ],
)
def test_what_cannot_be_measured_is_refused(server, change, param):
    body = {**SMALL, "steps": 64, "state": {"text": MET}, **change}
    reply = server.client.post("/committor", json={k: v for k, v in body.items() if v is not None})
    assert (reply.status_code, error_of(reply)["param"]) == (422, param), reply.text
    if "rollouts" in change and change["rollouts"] > 3000:
        assert "500000" in error_of(reply)["message"]


def test_examples_answer_as_shown(server):
    document = server.client.get("/openapi.json").json()
    shown = document["paths"]["/committor"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    schema = {"$ref": "#/components/schemas/CommittorJob", "components": document["components"]}
    for example in shown.values():
        answer = measure(server, {**example["value"], "rollouts": 2})
        jsonschema.validate(answer, schema)
        assert answer["status"] == "succeeded"
    assert {"200", "202", "422", "429"} <= set(document["paths"]["/committor"]["post"]["responses"])
