"""The commit order study: pooled over seeds, prompts as the unit, and honest comparisons at matched rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gate_models.offline.evaluation import run as evaluate
from gate_models.offline.evaluation.run import EvaluateSettings
from gate_models.offline.order_study.matches import matches
from gate_models.offline.order_study.points import StudySetting, points, read, series_of
from gate_models.offline.order_study.policies import LISTS
from gate_models.offline.scorers.fluency import Fluency, load_judge
from gate_models.policies.names import parse_policy
from service.cli import app
from tests.decoding.tiny import tiny_model
from tests.gate_models.order_study.samples import samples

HALF = [0.5] * 40
TEXTS = {
    "base": samples([0.1] * 40, 16),
    "handoff:0.3": samples(HALF, 21),
    "full_cfg": samples([0.9] * 40, 32),
    "full_cfg:k4": samples([0.9] * 40, 8),
    "drained:0.5:guidance_boost:b0.8": samples([0.8] * 40, 21),
    "drained:0.5:guidance_boost:b0.8:k4": samples([0.1] * 40, 17),
}


def test_a_guidance_first_policy_stands_beside_the_best_that_costs_no_more() -> None:
    measured = points(TEXTS, Fluency(load_judge()))
    pairs = {match.point.policy: match for match in matches(measured)}
    first = pairs["drained:0.5:guidance_boost:b0.8"]
    assert first.rival.policy == "handoff:0.3"
    assert first.difference.value == pytest.approx(0.3)
    assert first.verdict == "wins"
    cheap = pairs["drained:0.5:guidance_boost:b0.8:k4"]
    assert (cheap.rival.policy, cheap.verdict) == ("base", "even")
    losses = {point.policy: point.loss.value for point in measured if point.loss is not None}
    assert losses["full_cfg"] == 0.0
    assert losses["base"] == pytest.approx(0.8)


def test_prompts_are_the_unit() -> None:
    """Ten equal texts a prompt tell as much as one: the interval is that of 40 prompts."""
    split = [1.0] * 20 + [0.0] * 20
    (one,) = points({"base": samples(split, 16)}, Fluency(load_judge()))
    assert one.success.high - one.success.low > 0.25
    assert (one.prompts, one.texts) == (40, 400)


@pytest.mark.parametrize(
    ("policy", "series"),
    [
        ("base", "confidence order"),
        ("full_cfg:k4", "confidence order, parallel tail"),
        ("drained:0.5:guidance_boost:b0.8", "guidance first"),
        ("calibrated:guidance_boost:b0.8:k4", "guidance first, parallel tail"),
        ("calibrated", "confidence order"),
        ("value:0.002:k8", "confidence order, parallel tail"),
        ("recorded", "confidence order"),
    ],
)
def test_series(policy: str, series: str) -> None:
    assert series_of(policy) == series


def test_lists_are_policies_that_can_be_parsed() -> None:
    for names in LISTS.values():
        assert len(set(names)) == len(names)
        for name in names:
            parse_policy(name)


def test_from_evaluation_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_model()
    monkeypatch.setattr(evaluate, "load_model", lambda *_, **__: tiny)
    cuts = [f"handoff:{fraction}{order}" for fraction in (0.3, 0.6) for order in ("", ":guidance_boost")]
    policies = ("base", "full_cfg", *cuts, "full_cfg:guidance_boost")
    paths = [tmp_path / f"seed{seed}.json" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        evaluate.run(EvaluateSettings(("commongen-k3",), policies, n=3, seed=seed, threads=1), path)
    groups, common = read(paths)
    ((group, texts),) = groups.items()
    assert group == ("commongen-k3", StudySetting((16,)))
    assert str(group[1]) == "T = 16, temperature 1"
    assert common["seeds"] == [0, 1]
    assert {policy: len(own) for policy, own in texts.items()} == dict.fromkeys(policies, 6)
    with pytest.raises(ValueError, match="there already"):
        read([paths[0], paths[0]])
    named = [str(path) for path in paths]
    out = tmp_path / "study"
    files = [argument for name in named for argument in ("--result", name, "--switch", name)]
    asked = ["report", *files, "--command", "how", "--out", str(out)]
    answer = CliRunner().invoke(app, ["order-study", *asked])
    assert answer.exit_code == 0, answer.output
    written = json.loads((out / "study.json").read_text())
    assert written["commands"] == ["how"]
    assert written["pooled"]["families"] == ["commongen-k3"]
    assert [one["task"] for one in written["switch"]] == ["commongen-k3"]
    assert written["groups"][0]["policies"][0]["policy"] == "base"
    assert "handoff:0.3:guidance_boost" in (out / "report.md").read_text()
    for name in ("frontiers.png", "switch.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
