"""The console command."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import httpx
import pytest

from gate_models.offline.bench.latency import failures_explained
from tests.service.process import ROOT


def astargate(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    "command", ["", "serve", "generate", "models", "census run", "evaluate", "bench", "gate audit", "train mini"]
)
def test_help_never_loads_torch(command):
    arguments = [*command.split(), "--help"]
    script = (
        "import sys\nfrom service.cli import app\n"
        f"try:\n    app({arguments})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert not {'torch', 'transformers', 'fastapi', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_the_version_is_that_of_the_distribution():
    assert astargate("--version").stdout == f"astargate {version('astargate')}\n"


def test_generate_here_and_through_a_server_agree(server):
    arguments = [
        "generate",
        "--keywords",
        "dog, ball",
        "--policy",
        "base",
        "--gen-length",
        "8",
        "--seed",
        "3",
        "--json",
    ]
    here = json.loads(astargate(*arguments).stdout)
    there = json.loads(astargate(*arguments, "--url", server.url).stdout)
    assert here["samples"][0]["forward_evaluations"] == there["samples"][0]["forward_evaluations"]
    assert here["policy"] == there["policy"]


def test_generate_prints_text_and_ledger(server):
    shown = astargate("generate", "Write one sentence.", "--fraction", "0.3", "--policy", "parallel_tail",
                      "--gen-length", "16", "--url", server.url).stdout  # fmt: skip
    assert "12 forward evaluations (7 conditional, 5 unconditional); full CFG 32, saved 20" in shown


def test_generate_says_what_is_wrong(server):
    assert (
        "tail_width"
        in astargate("generate", "a", "--policy", "full_cfg", "--tail-width", "3", "--url", server.url, code=1).stderr
    )
    assert astargate("generate", "a", "--url", "http://127.0.0.1:9", code=1).stderr.startswith("error: ")
    assert astargate("generate", "--constraint", "{", code=2).stderr


def test_a_refusal_by_the_server_of_a_benchmark_is_told(server, tmp_path):
    (tmp_path / "log").write_text("the log's end")
    with (
        pytest.raises(ValueError, match=r"answered POST /generate with 422: .*gen_length"),
        failures_explained(tmp_path / "log"),
    ):
        server.client.post("/generate", json={"prompt": "a", "gen_length": 0}).raise_for_status()
    with pytest.raises(ValueError, match=r"broke off .*\n.*log's end"), failures_explained(tmp_path / "log"):
        httpx.get("http://127.0.0.1:9")


def test_models():
    assert "bert_mini" in astargate("models").stdout
    assert "config.json" in astargate("models", "--model", "nowhere", code=1).stderr


def test_generate_fills_a_template(server):
    line = astargate("generate", "Write.", "--template", "A dog [blank:3] ball.", "--seed", "7", "--url", server.url)
    assert line.stdout.startswith("A dog ")
    assert " ball.\n" in line.stdout
