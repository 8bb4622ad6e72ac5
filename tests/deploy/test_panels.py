"""Every panel and every rule, asked of a real Prometheus that watched a real server under a mixed load."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from deploy.grafana.build import dashboards, queries
from deploy.grafana.savings import saved_share, savings
from gate_models.gates.calibrated.constant import shipped_cuts
from service.metrics import definitions as define
from service.metrics.definitions import METRICS
from tests.deploy.prometheus import FOLDER

pytestmark = pytest.mark.slow


def substituted(expr: str, window: str) -> str:
    """PromQL as Grafana sends it, with All in every variable."""
    expr = expr.replace("$__rate_interval", window).replace("$__range", window)
    return re.sub(r"\$(instance|family|model)", ".*", expr)


def ungated(observed, expr: str) -> bool:
    """Whether a query is about the state of gates on a server that has none: on weights for which none ships."""
    about = any(name in expr for name in ("astargate_gate_state", "astargate:gates_suspended", "astargate_audit_gap"))
    model = observed.server.client.get("/v1/models").json()["data"][0]["hash"]
    ships = any(cut.regime.model_hash == model and cut.fraction is not None for cut in shipped_cuts())
    exposed = "astargate_gate_state{" in observed.server.client.get("/metrics").text
    return about and not exposed and not ships


def test_every_panel_query_returns_data(observed, capsys):
    asked = [(file, *query) for file, board in dashboards().items() for query in queries(board)]
    empty = [
        f"{file}: {title}: {expr}"
        for file, title, expr in asked
        if not observed.prometheus.vector(substituted(expr, observed.window), observed.at)
    ]
    waiting = [text for text in empty if ungated(observed, text)]
    titles = sorted({text.split(": ")[1] for text in waiting})
    with capsys.disabled():
        print(f"\npanel queries: {len(asked) - len(empty)} of {len(asked)} returned data")
        print(f"{len(waiting)} wait for a gate: {', '.join(titles)}")
    assert [text for text in empty if text not in waiting] == []
    assert "vector(0)" not in str(asked)


def rules(name: str) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def test_every_rule_is_evaluated_and_has_data(observed, capsys):
    groups = observed.prometheus.get("rules")["groups"]
    loaded = {rule["name"]: rule for group in groups for rule in group["rules"]}
    recorded, alerts = list(rules("recording.yml")), list(rules("alerts.yml"))
    assert set(loaded) == {rule["record"] for rule in recorded} | {rule["alert"] for rule in alerts}
    assert {name: rule["lastError"] for name, rule in loaded.items() if rule.get("lastError")} == {}
    asked = [rule["record"] for rule in recorded]
    asked += [re.sub(r" (==|>=|>|<=|<) [\d.]+$", "", rule["expr"].strip()) for rule in alerts]
    assert not any(re.search(r"[=<>] [\d.]+$", expr) for expr in asked)
    empty = [expr for expr in asked if not observed.prometheus.vector(expr)]
    waiting = [expr for expr in empty if ungated(observed, expr)]
    with capsys.disabled():
        print(
            f"\nrule queries: {len(asked) - len(empty)} of {len(asked)} returned data; {len(waiting)} wait for a gate"
        )
    assert [expr for expr in empty if expr not in waiting] == []


# The savings dashboard against the responses' ledgers


def grouped(observed, key: Callable[[str, str], str]) -> dict[str, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for policy, family, sample in observed.samples:
        groups[key(policy, family)].append(sample)
    return dict(groups)


def ledger(samples: list[dict[str, Any]], field: str) -> int:
    return sum(sample["forward_evaluations"][field] for sample in samples)


KEYS = {"": lambda policy, family: "", "policy": lambda policy, family: policy, "family": lambda policy, family: family}


def panel(title: str) -> str:
    """The first query of a panel of the savings dashboard."""
    return next(expr for name, expr in queries(savings()) if name == title)


def seconds(observed) -> int:
    return int(observed.window.removesuffix("s"))


@pytest.mark.parametrize(
    ("title", "label"), [("Saved share", ""), ("Saved share by family", "family"), ("Saved share by policy", "policy")]
)
def test_saved_shares_equal_the_ledgers(observed, title, label):
    expected = {
        key: ledger(samples, "saved") / ledger(samples, "full_cfg_equivalent")
        for key, samples in grouped(observed, KEYS[label]).items()
    }
    shown = observed.prometheus.by(label, substituted(panel(title), observed.window), observed.at)
    assert shown == pytest.approx(expected, abs=1e-9)
    assert any(share > 0 for share in expected.values())
    if label == "policy":
        assert shown["full_cfg"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("label", ["family", "policy"])
def test_rows_saved_equal_the_ledgers(observed, label):
    expected = {key: ledger(samples, "saved") for key, samples in grouped(observed, KEYS[label]).items()}
    expr = substituted(panel(f"Rows saved a second by {label}"), observed.window)
    shown = observed.prometheus.by(label, f"{seconds(observed)} * ({expr})", observed.at)
    assert shown == pytest.approx(expected, abs=1e-6)


def test_totals_equal_the_ledgers(observed):
    samples = [sample for _, _, sample in observed.samples]
    for title, field in (("Rows saved", "saved"), ("Rows spent", "total")):
        shown = observed.prometheus.by("", substituted(panel(title), observed.window), observed.at)
        assert shown == pytest.approx({"": ledger(samples, field)})
    expr = substituted(panel("Rows skipped after an end-of-text"), observed.window)
    skipped = sum(observed.prometheus.by("family", expr, observed.at).values()) * seconds(observed)
    assert skipped == pytest.approx(ledger(samples, "skipped_by_eos"))
    assert skipped > 0


@pytest.mark.parametrize(("title", "label"), [("Success", ""), ("Success by policy", "policy")])
def test_success_equals_the_verdicts(observed, title, label):
    judged = {
        key: [sample["satisfied"] for sample in samples if sample["satisfied"] is not None]
        for key, samples in grouped(observed, KEYS[label]).items()
    }
    expected = {key: sum(verdicts) / len(verdicts) for key, verdicts in judged.items() if verdicts}
    shown = observed.prometheus.by(label, substituted(panel(title), observed.window), observed.at)
    assert shown == pytest.approx(expected, abs=1e-9)


def test_handoff_rate_and_fallbacks_equal_the_answers(observed):
    families = grouped(observed, KEYS["family"])
    expected = {
        family: sum(sample["gate"]["decision"] == "handoff" for sample in samples) / len(samples)
        for family, samples in families.items()
    }
    expr = substituted(panel("Handoff rate"), observed.window)
    assert observed.prometheus.by("family", expr, observed.at) == pytest.approx(expected, abs=1e-9)
    fallbacks = sum(s["gate"]["fallback_reason"] is not None for samples in families.values() for s in samples)
    expr = substituted(panel("Fallback reasons"), observed.window)
    shown = observed.prometheus.by("reason", expr, observed.at)
    assert sum(shown.values()) * seconds(observed) == pytest.approx(fallbacks)
    assert fallbacks > 0


def test_a_saved_share_without_answers_is_no_number(observed):
    """Nothing is shown for a family that had no traffic: no zero that stands for "unknown"."""
    expr = substituted(saved_share("family"), observed.window)
    shown = observed.prometheus.by("family", expr, observed.at)
    assert "collie-c07" in define.EQUIVALENT.labels["family"]
    assert "collie-c07" not in shown


def test_labels_take_the_values_that_are_defined(observed):
    """No label holds a client's word: all values are in the definitions, after every kind of request."""
    text = observed.server.client.get("/metrics").text
    known = {name: metric for metric in METRICS for name in metric.exposed}
    series = re.findall(r"^(astargate_\w+?)(?:\{(.*)\})? \S+$", text, flags=re.MULTILINE)
    shown = {name for name, _ in series if not name.startswith("astargate_process_")}
    assert shown | {*define.GATE_STATE.exposed, *define.AUDIT_GAP.exposed} == set(known)  # no gate, no state
    for name, labels in series:
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            allowed = known[name].labels.get(label, define.ANY)
            assert label == "le" or not allowed or value in allowed, f"{name}: {label}={value!r}"
            assert label == "le" or label in known[name].labels
