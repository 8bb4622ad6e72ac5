"""The console command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version

import httpx
import pytest

from gate_models.offline.bench.latency import failures_explained
from service.commands.serve import ENVIRONMENT_ONLY
from service.config.settings import Settings
from tests.service.process import ROOT


def astargate(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    "command",
    ["", "serve", "run", "models", "models pull", "census run", "evaluate", "bench", "gate audit", "train mini"],
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


def test_a_run_here_and_through_a_server_agree(server):
    arguments = [
        "run",
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


def test_a_run_prints_text_and_ledger(server):
    shown = astargate("run", "Write one sentence.", "--fraction", "0.3", "--policy", "parallel_tail",
                      "--gen-length", "16", "--url", server.url).stdout  # fmt: skip
    assert "12 forward evaluations (7 conditional, 5 unconditional); full CFG 32, saved 20" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "prompt is empty"),
        (("a", "--policy", "hand_off"), "did you mean 'handoff'?"),
        (("a", "--policy", "value:k8:zz"), "option 'zz' is unknown"),
        (("a", "--policy", '{"presett": "auto"}'), "did you mean 'preset'?"),
        (("a", "--policy", '["auto"]'), "is no policy"),
        (("a", "--gate", "drain"), "did you mean 'drained'?"),
        (("a", "--gate", "never:1"), "takes no number"),
        (("a", "--policy", "full_cfg", "--tail-width", "3"), "policy.tail_width is not used"),
        (("a", "--policy", "parallel_tail", "--tail-rule", "spacd"), "did you mean 'spaced'?"),
        (("a", "--steps", "0"), "steps must be"),
        (("a", "--constraint", "{"), "--constraint is not JSON"),
        (("a", "--constraint", '{"type": "keyword"}'), "constraint"),
        (("--keywords", " , "), "names no word"),
        (("a", "--fraction", "0.3", "--gate", "drained"), "not both"),
    ],
)
def test_a_bad_call_is_answered_in_one_line_before_anything_is_loaded(arguments, said):
    script = (
        "import sys\nfrom service.cli import app\n"
        f"try:\n    app({['run', *arguments]!r})\nfinally:\n"
        "    assert not {'torch', 'transformers', 'fastapi', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.startswith("run: ")
    assert done.stderr.count("\n") == 1


def test_a_run_says_what_its_model_or_server_lacks(server):
    assert "neither a folder nor" in astargate("run", "a", "--model", "nowhere", code=1).stderr
    assert astargate("run", "a", "--url", "http://127.0.0.1:9", code=1).stderr.startswith("run: http://127.0.0.1:9")
    refused = astargate("run", "a", "--policy", "full_cfg", "--tail-width", "3", "--url", server.url, code=2).stderr
    assert refused == "run: policy.tail_width is not used by preset 'full_cfg'; leave it out\n"


def test_generate_is_another_name_of_run(server):
    shown = astargate("generate", "Write.", "--policy", "base", "--canvas", "4", "--url", server.url).stdout
    assert "4 forward evaluations" in shown


def test_a_refusal_by_the_server_of_a_benchmark_is_told(server, tmp_path):
    (tmp_path / "log").write_text("the log's end")
    with (
        pytest.raises(ValueError, match=r"answered POST /generate with 422: .*gen_length"),
        failures_explained(tmp_path / "log"),
    ):
        server.client.post("/generate", json={"prompt": "a", "gen_length": 0}).raise_for_status()
    with pytest.raises(ValueError, match=r"broke off .*\n.*log's end"), failures_explained(tmp_path / "log"):
        httpx.get("http://127.0.0.1:9")


def test_a_model_is_shown_by_name():
    assert "bert_mini" in astargate("models", "show").stdout
    assert "config.json" in astargate("models", "--model", "nowhere", code=1).stderr


def test_an_unknown_family_of_gates_is_answered_with_the_families():
    refused = astargate("gate", "show", "commongen-k", code=2).stderr
    assert "did you mean 'commongen-k" in refused
    assert "ifeval-capital-freq" in refused


def test_the_help_of_the_server_loses_nothing():
    shown = subprocess.run([sys.executable, "-m", "service.cli", "serve", "--help"], cwd=ROOT, check=True,
                           capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}).stdout  # fmt: skip
    assert "'astargate[otel]'" in shown
    assert "ASTARGATE_MAX_ROWS" in shown
    for name in Settings.model_fields.keys() - set(ENVIRONMENT_ONLY):
        assert f"--{name.replace('_', '-')} " in shown, name
    assert "(default: 64)" in shown


def test_a_run_fills_a_template(server):
    line = astargate("run", "Write.", "--template", "A dog [blank:3] ball.", "--seed", "7", "--url", server.url)
    assert line.stdout.startswith("A dog ")
    assert " ball.\n" in line.stdout
