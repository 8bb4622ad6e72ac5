"""The rules: promtool's unit tests, a test and a runbook paragraph for every alert, no name that nothing exposes."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from deploy.grafana.build import recorded_names
from deploy.grafana.queries import unknown_names
from tests.deploy.prometheus import FOLDER, program
from tests.service.process import ROOT

RUNBOOK = ROOT / "deploy" / "runbook.md"
TESTS = ("tests.yml", "tests_days.yml")


def load(name):
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def alerts():
    return [rule for group in load("alerts.yml")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("name", TESTS)
def test_promtool_unit_tests_pass(name):
    done = subprocess.run(
        [program("promtool"), "test", "rules", name], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize("name", TESTS)
def test_unit_tests_fix_the_order_of_the_groups(name):
    """promtool's own is random, so that an alert would read a recorded ratio now of this minute, now of the last."""
    groups = [group["name"] for file in load(name)["rule_files"] for group in load(file)["groups"]]
    assert load(name)["group_eval_order"] == groups


def test_promtool_accepts_the_configuration():
    done = subprocess.run(
        [program("promtool"), "check", "config", FOLDER / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_to_fire_and_not_to_fire():
    fires, rests = set(), set()
    for case in (case for name in TESTS for case in load(name)["tests"]):
        for check in case.get("alert_rule_test", ()):
            (fires if check["exp_alerts"] else rests).add(check["alertname"])
    names = {rule["alert"] for rule in alerts()}
    assert fires == names
    assert names - rests == {"AstargateFamilySuspended"}  # fires for one of three families: the others rest


def test_every_recording_rule_is_tested():
    asserted = " ".join(
        check["expr"]
        for name in TESTS
        for case in load(name)["tests"]
        for check in case.get("promql_expr_test", ())
    )  # fmt: skip
    through_alerts = {"astargate:gate_fallbacks:ratio30m", "astargate:gate_versions:count"}
    assert {name for name in recorded_names() if name not in asserted} == through_alerts


def test_every_alert_has_a_paragraph_in_the_runbook():
    sections = re.split(r"^## ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    paragraphs = {section.partition("\n")[0].strip(): section.partition("\n")[2].strip() for section in sections[1:]}
    assert {rule["alert"] for rule in alerts()} == {name for name in paragraphs if name.startswith("Astargate")}
    for rule in alerts():
        name = rule["alert"]
        assert len(paragraphs[name].split()) > 40, name
        assert rule["annotations"]["runbook"] == f"deploy/runbook.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_rules_name_metrics_that_exist():
    groups = [group for name in ("recording.yml", "alerts.yml") for group in load(name)["groups"]]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    assert unknown_names(expressions, recorded_names()) == []
    assert "vector(0)" not in " ".join(expressions)
