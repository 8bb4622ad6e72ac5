"""`drained` without a threshold: the shipped calibration serves, the answer shows which threshold, and why none."""

from __future__ import annotations

import pytest

from decoding.constraints import FAMILIES
from gate_models.gates.calibrated.drained import MEASURED, shipped_thresholds
from gate_models.gates.calibrated.pooled import POOLED, shipped_pooled
from gate_models.offline.benchmarks.tasks import load_task
from tests.shipped import mini

FIELDS = ("guidance_scale", "guided_width", "order", "boost_threshold", "tail_width")


def own_thresholds():
    """The calibrated thresholds of the shipped model."""
    model = mini().spec.hash
    return [entry for entry in shipped_thresholds() if entry.regime.model_hash == model]


def asked(entry, **gate):
    """A request in the regime that was measured."""
    regime = entry.regime
    policy = {name: getattr(regime, name) for name in FIELDS if getattr(regime, name) is not None}
    prompt = load_task(entry.evidence["task"], 1)[0]
    return {
        "prompt": prompt.prompt,
        "constraint": prompt.constraint,
        "render_constraint": prompt.render_constraint,
        "gen_length": regime.gen_length,
        "steps": regime.steps,
        "temperature": regime.temperature,
        "seed": 3,
        "policy": {"preset": "handoff", "gate": {"source": "drained", **gate}, **policy},
    }


def test_every_family_that_is_calibrated_is_so_in_both_orders():
    measured = {(entry.regime.family, entry.regime.order, entry.regime.tail_width) for entry in own_thresholds()}
    families = {family for family, _, _ in measured}
    assert families <= set(FAMILIES)
    assert "commongen-k3" in families
    assert measured == {
        (f, order, k) for f in families for order in ("confidence", "guidance_boost") for k in (1, 2, 4, 8)
    }
    assert all(entry.evidence["prompts"] >= 20 for entry in own_thresholds())


def test_the_calibrated_threshold_is_used_and_shown(server):
    entry = next(one for one in own_thresholds() if one.served is not None)
    answer = server.generate(asked(entry))
    assert answer["policy"]["gate"]["threshold"] == entry.threshold
    gate = answer["samples"][0]["gate"]
    assert (gate["version"], gate["fallback_reason"]) == (MEASURED, None)
    assert gate["evidence"] == "audited"
    assert gate["measured_loss"]["loss"] == entry.measured(entry.threshold).loss
    pooled = next(one for one in shipped_pooled() if one.model_hash == mini().spec.hash)
    other = server.generate({**asked(entry), "temperature": 0.5})
    told = other["policy"]["gate"]
    assert (told["threshold"], told["earliest"] or 0.0) == (pooled.threshold, pooled.earliest)
    assert (other["samples"][0]["gate"]["version"], other["samples"][0]["gate"]["evidence"]) == (POOLED, "pooled")
    given = server.generate(asked(entry, threshold=0.25))
    assert given["policy"]["gate"]["threshold"] == 0.25
    assert given["samples"][0]["gate"]["version"] == "builtin"
    assert (given["samples"][0]["gate"]["evidence"], given["samples"][0]["gate"]["measured_loss"]) == ("none", None)


def test_a_family_whose_guidance_does_not_drain_says_so(server):
    unsafe = [one for one in own_thresholds() if one.threshold is None]
    entry = max(unsafe, key=lambda one: one.regime.order)  # a guidance-first one, if there is one
    answer = server.generate(asked(entry))
    gate = answer["samples"][0]["gate"]
    assert (gate["decision"], answer["policy"]["order"]) == ("full_cfg", "confidence")
    assert answer["samples"][0]["forward_evaluations"]["total"] == 2 * entry.regime.steps
    assert "does not drain" in gate["fallback_reason"]
    assert answer["policy"]["gate"]["threshold"] is None
    refused = server.client.post("/generate", json=_rejecting(asked(entry)))
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "gate_unavailable"


def test_a_margin_is_certified_or_refused(server):
    for entry in own_thresholds()[:1]:
        for margin, threshold in entry.certified.items():
            answer = server.generate(asked(entry, margin=float(margin)))
            assert answer["policy"]["gate"]["threshold"] == threshold
            reason = answer["samples"][0]["gate"]["fallback_reason"]
            assert (reason is None) == (threshold is not None)
            assert reason is None or "confidence" in reason


def _rejecting(body):
    return {**body, "policy": {**body["policy"], "on_fallback": "reject"}}


def test_gates_lists_the_thresholds(server):
    listed = [
        gate for gate in server.client.get("/v1/gates?evidence=true").json()["data"] if gate["source"] == "drained"
    ]
    measured = shipped_thresholds()
    assert [(gate["family"], gate["threshold"]) for gate in listed] == [
        (entry.regime.family, entry.threshold) for entry in measured
    ]
    for gate, entry in zip(listed, measured, strict=True):
        assert {f"{margin['margin']:g}": margin["threshold"] for margin in gate["margins"]} == dict(entry.certified)
        assert gate["evidence"]["prompts"] == entry.evidence["prompts"]
        assert gate["version"] == MEASURED


@pytest.mark.parametrize("other", [{"threshold": 0.5}, {"recheck": 2}, {"threshold": 0.5, "earliest": 0.3}])
def test_a_margin_stands_alone(server, other):
    body = {"prompt": "x", "policy": {"gate": {"source": "drained", "margin": 0.05, **other}}}
    answer = server.client.post("/generate", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == f"policy.gate.{next(iter(other))}"
