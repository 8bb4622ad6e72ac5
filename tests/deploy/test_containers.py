"""Dockerfile and compose file. No container runs here: a linter reads them, and every name that they use must exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from service.config.settings import Settings
from tests.service.postgres import unavailable
from tests.service.process import ROOT

DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = ("compose.yaml", "compose.gpu.yaml")


def compose(name):
    return yaml.safe_load((ROOT / "deploy" / name).read_text(encoding="utf-8"))


def test_hadolint_finds_nothing():
    linter = Path(sys.executable).parent / "hadolint"
    if not linter.exists():
        unavailable("hadolint is not installed (make install EXTRAS=test,dev,deploy)")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_is_safe_by_default():
    last = DOCKERFILE.read_text(encoding="utf-8").split("\nFROM ")[-1]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, flags=re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/health/live", last, flags=re.MULTILINE)
    assert "ARG TORCH_VARIANT=cpu" in DOCKERFILE.read_text(encoding="utf-8")
    variables = re.findall(r"\bASTARGATE_(\w+)=", last)
    assert {name.lower() for name in variables} <= set(Settings.model_fields)


@pytest.mark.parametrize(("variant", "wanted"), [("cpu", r"torch==[\d.]+\+cpu"), ("", r"torch==[\d.]+")])
def test_the_torch_that_is_installed_is_the_pinned_one(tmp_path, variant, wanted):
    """The Dockerfile's own shell expression, with a `pip` that says what it was asked for."""
    (command,) = re.findall(r"^RUN (pip install --no-deps .*\\\n.*)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
    asked = f"pip() {{ printf '%s\\n' \"$@\"; }}\n{command}"
    environment = {"TORCH_VARIANT": variant, "TORCH_INDEX_URL": "", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        ["sh", "-c", asked], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    assert shown[:-1] == ["install", "--no-deps"]
    assert re.fullmatch(wanted, shown[-1])


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_names_what_exists(name):
    service = compose(name)["services"]["astargate"]
    known = set(re.findall(r"^ARG (\w+)", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(service["build"]["args"]) <= known
    fields = {variable.removeprefix("ASTARGATE_").lower() for variable in service["environment"]}
    assert fields <= set(Settings.model_fields)


def test_compose_mounts_what_exists_and_publishes_nothing():
    whole = compose("compose.yaml")
    for name, service in whole["services"].items():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), name
        for volume in service["volumes"]:
            source = re.sub(r"\$\{\w+:-(.+?)\}", r"\1", volume).split(":")[0]
            if source.startswith("."):
                assert (ROOT / "deploy" / source).exists(), volume
            else:
                assert source in whole["volumes"], volume
    service = whole["services"]["astargate"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace > Settings.model_fields["drain_seconds"].default


def test_grafana_finds_prometheus_and_the_dashboards():
    whole = compose("compose.yaml")
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    host = source["url"].removeprefix("http://").split(":")[0]
    assert host in whole["services"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "astargate.yml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in whole["services"]["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    (target,) = scraped["static_configs"][0]["targets"]
    assert target.split(":")[0] in whole["services"]
    assert scraped["job_name"] == "astargate"
