"""`astargate serve` on checkpoints in the published layouts: they answer, reuse says so, damage is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file

from decoding.models.tools.make_random import make_random
from tests.service.process import ROOT, error_of

HANDOFF = {"preset": "handoff", "gate": {"source": "fraction", "fraction": 0.3}}
BODY = {"prompt": "Say yes.", "constraint": {"type": "no_comma"}, "gen_length": 32, "seed": 7}


def refusal(*options):
    """What a server says that refuses to start."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ASTARGATE_")}
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--port", "0", *options],
        cwd=ROOT, env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("arch", ["llada", "dream"])
def test_random_checkpoints_answer(arch, spawn, tmp_path):
    server = spawn("--model", str(make_random(arch, tmp_path / arch))).wait_for(200)
    (model,) = server.client.get("/v1/models").json()["data"]
    assert (model["id"], model["tail_reuse"], model["precision"]) == (arch, True, "float32")
    exact = server.generate({**BODY, "policy": HANDOFF})
    reused = server.generate(
        {**BODY, "block_length": 8, "policy": {**HANDOFF, "tail_reuse": "dual", "tail_refresh": 4}}
    )
    assert [answer["samples"][0]["approximate"] for answer in (exact, reused)] == [False, True]
    assert (exact["policy"]["tail_reuse"], exact["policy"]["tail_refresh"]) == (None, 8)
    assert (reused["policy"]["tail_reuse"], reused["policy"]["tail_refresh"]) == ("dual", 4)
    assert exact["samples"][0]["forward_evaluations"] == reused["samples"][0]["forward_evaluations"]
    assert exact["samples"][0]["text"]
    traced = error_of(server.client.post("/generate", json={**BODY, "policy": reused["policy"], "trace": True}))
    assert traced["param"] == "policy.tail_reuse"


def test_reuse_is_refused_in_batch_invariant_mode(server):
    reply = server.client.post("/generate", json={**BODY, "policy": {"preset": "base", "tail_reuse": "prefix"}})
    assert reply.status_code == 422
    assert error_of(reply)["param"] == "policy.tail_reuse"
    assert "batch-invariant" in error_of(reply)["message"]
    (model,) = server.client.get("/v1/models").json()["data"]
    assert model["tail_reuse"] is False


def damaged(folder, name, change):
    """`folder` with one tensor changed, or taken out of shard and index where `change` gives None."""
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shard = folder / content["weight_map"][name]
    tensors = load_file(shard)
    tensors[name] = change(tensors[name])
    if tensors[name] is None:
        del tensors[name], content["weight_map"][name]
        index.write_text(json.dumps(content))
    save_file(tensors, shard)
    return str(folder)


def test_a_misshaped_tensor_is_named(tmp_path):
    name = "model.transformer.blocks.0.ff_proj.weight"
    folder = damaged(make_random("llada", tmp_path / "llada"), name, lambda tensor: tensor[:-1].contiguous())
    assert f"tensor {name} has shape (351, 128), expected (352, 128)" in refusal("--model", folder)


def test_a_missing_tensor_is_named(tmp_path):
    name = "model.layers.1.self_attn.k_proj.bias"
    folder = damaged(make_random("dream", tmp_path / "dream"), name, lambda tensor: None)
    assert f"tensor {name} is missing" in refusal("--model", folder)


def test_an_unknown_quantization_is_refused_at_once():
    assert "--quantization" in refusal("--quantization", "int3")
