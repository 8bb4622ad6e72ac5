"""The lists of hashes: they hold all that an installation needs, at the versions of `constraints.txt`, but torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.requirements.build import ALONE, FOLDER, ROOT, UNHASHED, blocks, pins

PINNED = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LISTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}


def needed(requirements: Iterable[str]) -> set[str]:
    """Names of what `requirements` lead to in this environment; of what is not installed here, the name alone."""
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate({"extra": extra})) or UNHASHED.fullmatch(name):
            continue
        for wanted in requirement.extras | {""}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                try:
                    waiting += [(Requirement(text), wanted) for text in requires(name) or ()]
                except PackageNotFoundError:
                    continue
    return {name for name, _ in seen}


@pytest.mark.parametrize("name", LISTS)
def test_every_package_has_its_version_and_hashes(name: str) -> None:
    listed = blocks(LISTS[name])
    for package, lines in listed.items():
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", lines)) >= 1, package
        assert not UNHASHED.fullmatch(package)
    assert pins(LISTS[name]).items() <= PINNED.items()
    assert len(listed) == sum(line[:1].isalnum() for line in LISTS[name].splitlines())


def test_there_is_a_list_for_every_extra() -> None:
    assert set(LISTS) == {"server", *EXTRAS}


@pytest.mark.parametrize("extra", [None, *sorted(EXTRAS)])
def test_nothing_is_left_to_an_unhashed_download(extra: str | None) -> None:
    listed = set(pins(LISTS[extra or "server"]))
    if extra != ALONE:
        listed |= set(pins(LISTS["server"]))
    wanted = EXTRAS[extra] if extra else [*PROJECT["dependencies"], "setuptools"]
    assert needed(wanted) <= listed


def test_a_file_of_another_hash_is_refused(tmp_path) -> None:
    """pip's own check, on a list whose one hash is another package's."""
    wheel = tmp_path / "astargate_nothing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not what was listed")
    (tmp_path / "list.txt").write_text(f"astargate-nothing==1.0 --hash=sha256:{'0' * 64}\n")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", tmp_path]
    command += ["--require-hashes", "--no-deps", "--requirement", tmp_path / "list.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_image_and_makefile_install_by_hash() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    named = re.findall(r"-r deploy/requirements/(\w+)\.txt", dockerfile)
    assert {"server", "postgres", ALONE} == set(named) <= set(LISTS)
    for command in re.findall(r"(?:pip|pip3) install (.*)", dockerfile):
        assert "--require-hashes" in command or "TORCH_INDEX_URL" in command or "--no-build-isolation" in command
    assert {"server", "test", "dev"} == set(lists_installed_for("install"))


@pytest.mark.parametrize("target", ["test", "check", "lint", "wire", "locks", "format"])
def test_a_target_that_needs_tools_installs_them(target: str) -> None:
    assert {"server", "test", "dev"} == set(lists_installed_for(target))


def test_serving_installs_no_tools() -> None:
    assert lists_installed_for("serve") == ["server"]
    shown = dry_run("serve")
    assert [line for line in shown if "--editable" in line and "[plot]" not in line] == []
    assert not any(re.search(rf"\[[\w,]*{extra}", line) for line in shown for extra in EXTRAS)


def test_what_is_long_is_announced_before_it_runs() -> None:
    shown = dry_run("serve")
    for number, line in enumerate(shown):
        if re.search(r"-m (venv|pip install)", line):
            assert shown[number - 1].startswith("echo "), line


def lists_installed_for(target: str) -> list[str]:
    hashed = [line for line in dry_run(target) if "--require-hashes" in line]
    return [name for line in hashed for name in re.findall(r"requirements/(\w+)\.txt", line)]


def dry_run(target: str) -> list[str]:
    """The commands that make would run for `target` in a fresh clone, one a line."""
    plain = {name: value for name, value in os.environ.items() if name not in ("EXTRAS", "MAKEFLAGS", "MAKEOVERRIDES")}
    shown = subprocess.run(["make", "--dry-run", "VENV=/nowhere", target], cwd=ROOT, check=True,
                           capture_output=True, text=True, env=plain).stdout  # fmt: skip
    return shown.replace("\\\n", " ").splitlines()


def test_the_bill_of_materials_names_what_a_server_installs() -> None:
    bill = json.loads((ROOT / "deploy" / "sbom.cdx.json").read_text(encoding="utf-8"))
    versions = {canonicalize_name(part["name"]): part["version"] for part in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == PROJECT["name"]
    assert versions["torch"].partition("+")[0] == PINNED["torch"]
    for name in needed([*PROJECT["dependencies"], *EXTRAS["postgres"], *EXTRAS["otel"]]):
        assert versions[name] == PINNED[name], name
