"""The Helm chart, rendered by Helm's own engine and checked against Kubernetes' schemas."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec

import pytest
import yaml

from deploy.grafana.build import FOLDER as DASHBOARDS
from service.config.settings import Settings
from tests.deploy.prometheus import program
from tests.service.postgres import unavailable
from tests.service.process import ROOT

CHART = ROOT / "deploy" / "helm" / "astargate"
KUBERNETES = ("1.27", "1.30", "1.33")
EVERYTHING = {
    "autoscaling": {"enabled": True},
    "database": {"existingSecret": "pg"},
    "serviceMonitor": {"enabled": True, "bearerSecret": "scrape"},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "apiKeys": {"value": "team:secret"},
    "model": {"existingClaim": "models", "name": "/models/llada", "device": "cuda", "dtype": "bfloat16"},
    "gates": {"existingClaim": "gates"},
    "settings": {"MAX_ROWS": "128", "PROTECT_METRICS": "true"},
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "nodeSelector": {"gpu": "yes"},
    "podAnnotations": {"team": "text"},
}
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator: no package ships their schema, so they are checked by hand below."""


@pytest.fixture(scope="module")
def helm():
    if not find_spec("helm_python") or not find_spec("kubernetes_validate"):
        unavailable("the chart's tools are not installed (make install EXTRAS=test,dev,deploy)")
    import helm_python

    return helm_python


@pytest.fixture
def render(helm):
    def rendered(values):
        with helm.Chart.load(str(CHART)) as chart:
            chart.validate_schema(values)
            texts = chart.render(values, name="demo", namespace="prod")
        manifests = [text for name, text in texts.items() if name.endswith(".yaml")]
        documents = [part for text in manifests for part in yaml.safe_load_all(text) if part]
        return {part["kind"]: part for part in documents}

    return rendered


def test_helm_lint_finds_no_fault(helm):
    report = helm.lint(str(CHART))
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_manifests_fit_the_schemas(render, values, version):
    import kubernetes_validate

    documents = render(values)
    checked = [kind for kind in documents if kind not in CUSTOM]
    for kind in checked:
        kubernetes_validate.validate(documents[kind], version, strict=True)
    wanted = {"Deployment", "Service", "PodDisruptionBudget"}
    wanted |= {"HorizontalPodAutoscaler", "Secret", "ConfigMap"} if values else {"PersistentVolumeClaim"}
    assert set(checked) == wanted
    broken = documents["Deployment"] | {"spec": documents["Deployment"]["spec"] | {"replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_pod_is_locked_down_and_configured_by_known_settings(render, values):
    pod = render(values)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    names = [variable["name"] for variable in container["env"]]
    assert len(set(names)) == len(names)
    assert {name.removeprefix("ASTARGATE_").lower() for name in names} <= set(Settings.model_fields)
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    drain = next(variable["value"] for variable in container["env"] if variable["name"] == "ASTARGATE_DRAIN_SECONDS")
    assert pod["terminationGracePeriodSeconds"] > int(drain) + 5
    assert "team:secret" not in json.dumps(pod)


def test_probes_and_selectors_meet(render):
    documents = render(EVERYTHING)
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "ServiceMonitor"):
        selector = documents[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels.items(), kind
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    scaler = documents["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == documents["Deployment"]["metadata"]["name"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == "astargate_requests_waiting"
    assert "replicas" not in documents["Deployment"]["spec"]


def test_the_operator_gets_the_committed_rules_and_dashboards(render, tmp_path):
    documents = render(EVERYTHING)
    monitor = documents["ServiceMonitor"]["spec"]
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in documents["Service"]["spec"]["ports"]}
    assert documents["Service"]["metadata"]["labels"][monitor["jobLabel"]] == "astargate"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(documents["PrometheusRule"]["spec"]))
    subprocess.run([program("promtool"), "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True)
    committed = [
        group
        for name in ("recording.yml", "alerts.yml")
        for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / name).read_text())["groups"]
    ]
    assert documents["PrometheusRule"]["spec"]["groups"] == committed
    shipped = {path.name: json.loads(path.read_text()) for path in DASHBOARDS.iterdir()}
    assert {name: json.loads(text) for name, text in documents["ConfigMap"]["data"].items()} == shipped


def test_what_cannot_work_is_refused(helm, render):
    with pytest.raises(helm.HelmError, match="PostgreSQL"):
        render({"replicas": 2})
    with pytest.raises(helm.HelmError, match=r"(?i)replica"):
        render({"replicas": "many"})
    with pytest.raises(helm.HelmError, match=r"(?i)repplicas"):
        render({"repplicas": 1})
