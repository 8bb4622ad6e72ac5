"""Loading, draining, a full queue, a model that fails: each in a server of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from decoding.models.checkpoint import CheckpointError
from decoding.models.registry import shipped_model
from service.backend import backend
from service.config.settings import Settings
from service.server import root_url
from tests.service.process import ROOT, error_of, wait_until

SHORT = {"prompt": "a", "gen_length": 32, "steps": 64, "policy": {"preset": "full_cfg"}}
LONG = {**SHORT, "steps": 400}
"""Still runs when the test has seen that it runs."""
ENDLESS = {**LONG, "steps": 4096}


def test_a_signal_lets_running_requests_finish(spawn):
    process = spawn("--drain-seconds", "600", command=True).wait_for(200)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{process.url}/generate", json=LONG, timeout=600)
        process.wait_running()
        process.process.send_signal(signal.SIGTERM)
        process.wait_for(503)
        assert error_of(process.client.get("/health/ready"))["code"] == "draining"
        assert process.client.get("/health/live").status_code == 200
        refused = process.client.post("/generate", json=SHORT)
        assert (refused.status_code, error_of(refused)["code"]) == (503, "draining")
        assert answer.result().status_code == 200
        assert answer.result().json()["samples"][0]["forward_evaluations"]["total"] == 800
    assert process.process.wait(600) == 0


def test_full_queue_then_a_drain_that_runs_out_of_time(spawn):
    process = spawn("--drain-seconds", "0.5", "--max-queued-rows", "64").wait_for(200)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(httpx.post, f"{process.url}/generate", json=ENDLESS, timeout=600)
        process.wait_running()
        refused = process.client.post("/generate", json=SHORT)
        assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        assert process.metrics()['astargate_admission_rejections_total{reason="queue_full"}'] == 1
        process.process.send_signal(signal.SIGTERM)
        assert plain.result().status_code == 503
        assert error_of(plain.result())["code"] == "shutting_down"
    assert process.process.wait(600) == 0


def test_a_drain_ends_a_stream_with_an_error_event(spawn):
    process = spawn("--drain-seconds", "0.2").wait_for(200)
    with process.client.stream("POST", "/generate", json={**ENDLESS, "stream": True}) as reply:
        chunks = reply.iter_text()
        next(chunks)
        process.process.send_signal(signal.SIGTERM)
        text = "".join(chunks)
    assert "event: error" in text
    assert "shutting_down" in text
    assert process.process.wait(600) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_not_ready_until_the_model_is_loaded(spawn, tmp_path):
    """The config is a pipe that nobody writes to, until the test does: loading takes as long as the test wants."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).symlink_to(shipped_model() / name)
    config = (shipped_model() / "config.json").read_bytes()
    os.mkfifo(folder / "config.json")
    process = spawn("--model", str(folder)).wait_for(200, "/health/live").wait_for(503)
    for method, path in (("GET", "/health/ready"), ("POST", "/generate"), ("GET", "/v1/models"), ("GET", "/v1/gates")):
        reply = process.client.request(method, path, json={"prompt": "a"} if method == "POST" else None)
        assert (reply.status_code, error_of(reply)["code"]) == (503, "not_ready")
    assert process.client.get("/v1/constraints").status_code == 200
    with (folder / "config.json").open("wb") as pipe:
        (tmp_path / "config.json").write_bytes(config)
        os.replace(tmp_path / "config.json", folder / "config.json")
        pipe.write(config)
    process.wait_for(200)
    assert process.generate({**SHORT, "steps": 2})["samples"]


def test_a_signal_while_loading_ends_the_server(spawn, tmp_path):
    os.mkfifo(tmp_path / "config.json")
    process = spawn("--model", str(tmp_path), command=True).wait_for(200, "/health/live")
    assert process.stop() == 0


def test_a_signal_while_weights_are_read_ends_the_server_too(spawn):
    """The thread that loads is then inside torch, which must not be there when the interpreter ends."""
    process = spawn(command=True).wait_for(200, "/health/live")
    assert process.stop() == 0
    assert "terminate called" not in process.log.read_text()


def test_a_model_that_cannot_be_loaded_ends_the_server(spawn, tmp_path):
    process = spawn("--model", str(tmp_path / "nowhere"), command=True)
    assert process.process.wait(600) == 1
    assert "config.json does not exist" in process.log.read_text()


def test_a_model_that_fails_gives_500_and_the_server_goes_on(spawn, tmp_path):
    """Weights that are NaN at the last prompt position: a prompt that reaches it fails, and fails alone."""
    folder = tmp_path / "model"
    shutil.copytree(shipped_model(), folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    tensors = load_file(folder / "model.safetensors")
    (positions,) = [name for name in tensors if "position_embeddings" in name]
    tensors[positions][-1] = torch.nan  # reached by the longest prompts alone
    save_file(tensors, folder / "model.safetensors")
    process = spawn("--model", str(folder), "--quantization", "none").wait_for(200)
    limit = process.client.get("/v1/models").json()["data"][0]["limits"]["max_prompt"]
    bad = {"prompt": "dog " * limit, "gen_length": 8, "policy": {"preset": "base"}}
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(process.generate, LONG)
        process.wait_running()
        reply = process.client.post("/generate", json=bad, headers={"X-Request-Id": "find-me"})
        assert good.result()["samples"][0]["text"]
    assert reply.status_code == 500
    error = error_of(reply)
    assert (error["code"], error["type"]) == ("internal_error", "server_error")
    assert "find-me" in error["message"]
    assert "NaN" not in reply.text
    (line,) = [line for line in process.log.read_text().splitlines() if "request find-me failed" in line]
    assert "NaN" in line
    assert process.generate(SHORT)["samples"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer_norm_eps": 1e30}, "layer_norm_eps"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"num_heads": 7}, "heads"),
        ({"prompt_offset": 0}, "prompt_offset"),
        ({"prompt_offset": 511}, "cannot decode"),
        ({"prompt_offset": 8}, "nothing can be asked of it"),
        ({"max_positions": True}, "max_positions"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_a_model_whose_config_is_nonsense_never_gets_ready(tmp_path, change, reason):
    folder = tmp_path / "model"
    shutil.copytree(shipped_model(), folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=reason):
        backend.load(Settings(model=str(folder), threads=1))


def test_a_model_that_writes_no_numbers_never_gets_ready(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(shipped_model(), folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    tensors = load_file(folder / "model.safetensors")
    next(value for name, value in tensors.items() if "word_embeddings" in name)[:] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="NaN"):
        backend.load(Settings(model=str(folder), threads=1, quantization="none"))


def test_a_bad_setting_is_named(tmp_path):
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "99999"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_a_server_that_is_ready_says_where_to_go_in_its_last_lines(spawn):
    server = spawn("--no-access-log").wait_for(200)
    said = wait_until(server.log.read_text, lambda text: "database: " in text, "the last line")
    last = [line.rpartition("service.server: ")[2] for line in said.splitlines()[-3:]]
    assert last == [
        f"playground: {server.url}/",
        f"API: {server.url}/docs",
        f"database: sqlite:///{server.log.resolve()}.db",
    ]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("0.0.0.0", "http://127.0.0.1:80/"),
        ("::", "http://[::1]:80/"),
        ("[::1]", "http://[::1]:80/"),
        ("box.example", "http://box.example:80/"),
    ],
)
def test_the_address_that_is_shown_can_be_opened(host, url):
    assert root_url(host, 80) == url
