"""`astargate adapt`, as a user runs it: from a file of tasks to a gate that serves their family."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from gate_models.offline.adapt.report import VALUE, advised, rows_of
from gate_models.offline.adapt.settings import AdaptSettings
from tests.service.process import ROOT

KINDS = ("dog", "cat", "horse", "bird", "cow", "boat", "car", "girl")
SMALL = ("--rollouts", "1", "--samples", "1", "--trees", "10", "--canvas", "8")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A file of two dozen tasks."""
    path = tmp_path_factory.mktemp("adapt") / "tasks.jsonl"
    lines = [
        {
            "prompt": f"Write one sentence about a {kind}.",
            "family": "one-word",
            "constraint": {"type": "contains", "phrases": [kind, word]},
        }
        for kind in KINDS
        for word in ("park", "red", "water")
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def adapt(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "service.cli", "adapt", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def adapted(tasks):
    """The folder of gates, and what the command said."""
    out = tasks.parent / "gates"
    done = adapt(tasks, "--out", out, "--yes", *SMALL)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_it_says_what_it_takes_and_begins_only_when_asked_to(tasks, tmp_path):
    done = adapt(tasks, "--out", tmp_path / "gates", *SMALL)
    assert done.returncode == 2
    assert "give --yes" in done.stderr
    assert re.search(
        r"one-word: 24 different tasks, canvas of 8 tokens\nabout \d+ forward evaluations, \d+", done.stdout
    )
    assert not list((tmp_path / "gates").iterdir())


def test_the_gate_serves_its_family_and_nobody_else(adapted, server, spawn):
    out, said = adapted
    assert f"serve: astargate serve --model mini --gates {out}" in said
    own = spawn("--gates", str(out), defaults="model").wait_for(200)
    asked = {
        "prompt": "Write one sentence about a dog.",
        "constraint": {"type": "contains", "phrases": ["dog", "park"]},
        "family": "one-word",
        "gen_length": 8,
        "seed": 3,
    }
    before = server.generate(asked)["samples"][0]["gate"]
    assert (before["source"], before["evidence"]) == ("drained", "pooled")
    listed = own.client.get("/v1/gates").json()["data"]
    sources = {gate["source"] for gate in listed if gate["family"] == "one-word"} & {"constant", "policy", "value"}
    assert sources
    for source in sources:
        policy = {"preset": "handoff", "gate": {"source": source}, "on_fallback": "reject"}
        gate = own.generate({**asked, "policy": policy})["samples"][0]["gate"]
        assert (gate["source"], gate["evidence"], gate["fallback_reason"]) == (source, "audited", None)
    other = own.generate({**asked, "family": "another"})["samples"][0]["gate"]
    assert other["evidence"] != "audited"


def test_the_report_says_what_to_serve_and_the_command_goes_on(adapted, tasks):
    out, _ = adapted
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "one-word" in page
    assert page.count("data:image/png;base64,") == 1
    assert re.search(r"(Serve|No gate was shown|Guidance is not needed)", page)
    assert "That is few" in page
    again = adapt(tasks, "--out", out, "--yes", *SMALL)
    assert again.returncode == 0, again.stderr
    assert "measuring what guidance is worth (0 forward evaluations)" in again.stdout
    assert (out / "report.html").read_text(encoding="utf-8") == page


def result(source, success, rows, loss=0.0, width=1):
    interval = {"value": -loss, "low": -loss - 0.02, "high": -loss + 0.02}
    return {
        "source": source, "width": width, "success": {"value": success, "low": success - 0.1, "high": success + 0.1},
        "rows": rows, "perplexity": 50.0, "repeats": 0.0, "against": {"full_cfg": interval},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("base_loss", "value_loss", "constant_loss", "policy"),
    [
        (0.01, 0.0, 0.0, {"preset": "base"}),
        (0.30, 0.01, 0.0, {"preset": "handoff", "gate": {"source": "value"}}),
        (0.30, 0.20, 0.02, {"preset": "handoff", "gate": {"source": "constant"}}),
        (0.30, 0.20, 0.10, {"preset": "full_cfg"}),
        (0.30, 0.20, 0.04, {"preset": "full_cfg"}),
    ],
)
def test_the_first_policy_that_loses_little_for_certain_is_advised(base_loss, value_loss, constant_loss, policy):
    results = [
        result("full_cfg", 0.9, 32.0),
        result("fixed 0", 0.9 - base_loss, 16.0, base_loss),
        result(VALUE, 0.9 - value_loss, 22.0, value_loss),
        result("constant", 0.9 - constant_loss, 24.0, constant_loss),
    ]
    rows = rows_of(results, (1,))
    words, advice = advised(rows, AdaptSettings(margin=0.05), 100)
    assert advice == policy
    assert f"{rows[0].success:.2f}" in words or policy == {"preset": "full_cfg"}


def test_what_is_likely_and_not_shown_is_said_so():
    narrow = [result("full_cfg", 0.9, 32.0), result("fixed 0", 0.5, 16.0, 0.4), result(VALUE, 0.89, 22.0, 0.01)]
    words, policy = advised(rows_of(narrow, (1,)), AdaptSettings(margin=0.025), 100)
    assert policy["gate"] == {"source": "value"}
    assert "cannot exclude a loss of 0.03. About 180 tasks" in words


def test_a_model_that_fails_is_not_helped_by_a_gate():
    results = [result("full_cfg", 0.0, 32.0), result("fixed 0", 0.0, 16.0)]
    results[0]["success"]["high"] = 0.03
    words, policy = advised(rows_of(results, (1,)), AdaptSettings(), 100)
    assert policy == {"preset": "auto"}
    assert "does not do these tasks" in words
