"""A served model's defaults: shown, applied to every way of asking, and set aside by one word."""

from __future__ import annotations

import json
import shutil

import pytest

from decoding.models.registry import shipped_model

OWN = {
    "temperature": 0.6,
    "policy": {"guidance_scale": 1.0, "order": "conditional", "plausibility": 0.1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The shipped model with other defaults."""
    where = tmp_path_factory.mktemp("defaults") / "model"
    shutil.copytree(shipped_model(), where)
    (where / "generation_config.json").write_text(json.dumps(OWN))
    return where


@pytest.fixture
def served(spawn, folder):
    return spawn("--model", str(folder), defaults="model").wait_for(200)


def test_open_fields_come_from_the_model(served):
    shown = served.client.get("/v1/models").json()["data"][0]["defaults"]
    assert (shown["temperature"], shown["top_p"]) == (0.6, 1.0)
    assert {name: shown["policy"][name] for name in OWN["policy"]} == OWN["policy"]
    presets = {entry["preset"]: entry["policy"] for entry in served.client.get("/v1/policies").json()["data"]}
    assert presets["full_cfg"]["plausibility"] == 0.1
    assert presets["base"]["plausibility"] is None

    asked = {"prompt": "Write one sentence.", "gen_length": 8, "seed": 1}
    answer = served.client.post("/generate", json=asked).json()
    assert answer["temperature"] == 0.6
    assert {**answer["policy"], "gate": None} == {**shown["policy"], "gate": None}  # the gate is a fallback's
    named = served.client.post("/generate", json={**asked, "policy": {"preset": "full_cfg"}}).json()["policy"]
    assert (named["guidance_scale"], named["order"], named["plausibility"]) == (1.0, "conditional", 0.1)

    paper = served.client.post("/generate", json={**asked, "policy": {"defaults": "paper"}}).json()
    assert paper["temperature"] == 1.0
    assert (paper["policy"]["guidance_scale"], paper["policy"]["order"]) == (2.0, "confidence")
    assert paper["policy"]["plausibility"] is None
    own = served.client.post("/generate", json={**asked, "temperature": 0, "policy": {"plausibility": 0.5}}).json()
    assert (own["temperature"], own["policy"]["plausibility"]) == (0.0, 0.5)

    # The same words of the same seed, whichever way the defaults were named.
    spelled = {**asked, "temperature": 0.6, "policy": {"defaults": "paper", "preset": "handoff", **OWN["policy"]}}
    assert served.client.post("/generate", json=spelled).json()["samples"] == answer["samples"]
    openai = {"model": served.client.get("/v1/models").json()["data"][0]["id"], "prompt": "Write one sentence."}
    openai |= {"max_tokens": 8, "seed": 1}
    completion = served.client.post("/v1/completions", json=openai).json()
    assert completion["choices"][0]["text"] == answer["samples"][0]["text"]


def test_defaults_that_no_policy_can_have_end_the_start(spawn, folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "generation_config.json").write_text('{"policy": {"preset": "base", "guidance_scale": 3}}')
    server = spawn("--model", str(broken), defaults="model")
    assert server.process.wait(120) != 0
    log = server.log.read_text()
    assert "generation_config.json" in log
    assert "policy.guidance_scale" in log


def test_an_operator_sets_them_aside(spawn, folder):
    server = spawn("--model", str(folder), "--defaults", "paper", defaults="model").wait_for(200)
    shown = server.client.get("/v1/models").json()["data"][0]["defaults"]
    assert (shown["temperature"], shown["policy"]["guidance_scale"], shown["policy"]["plausibility"]) == (
        1.0,
        2.0,
        None,
    )
    answer = server.client.post("/generate", json={"prompt": "Write one sentence.", "gen_length": 4, "seed": 1}).json()
    assert (answer["temperature"], answer["policy"]["order"]) == (1.0, "confidence")
