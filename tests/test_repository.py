"""Rules of the repository as a whole: imports between packages, packaging, dependencies, the README's commands."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from importlinter import api
from importlinter.application import rendering, use_cases
from importlinter.application.user_options import UserOptions

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("decoding", "gate_models", "service")
CLIENT = ROOT / "clients" / "python"


@cache
def repository_files() -> tuple[Path, ...]:
    """Files that are or would be committed; in a copy without git, everything outside hidden and generated folders."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    else:
        paths = list(_walk())
    return tuple(sorted(path for path in paths if path.is_file()))


def _walk() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        kept = [name for name in subfolders if name == ".ci" or not name.startswith((".", "__pycache__"))]
        subfolders[:] = [
            name for name in kept if name not in {"build", "dist", "runs"} and not name.endswith(".egg-info")
        ]
        yield from (Path(folder) / name for name in names)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*tops: str) -> list[Path]:
    return [p for p in repository_files() if p.suffix == ".py" and (not tops or p.relative_to(ROOT).parts[0] in tops)]


def configuration() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# Import rules


def test_import_rules_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(CLIENT / "src"))
    options = api.read_configuration(str(ROOT / "pyproject.toml"))
    contracts = options["contracts_options"]
    use_cases._register_built_in_contract_types()
    report = use_cases.create_report(UserOptions(options["session_options"], contracts), cache_dir=None)
    rendering.render_report(report)
    assert not report.contains_failures, capsys.readouterr().out
    assert report.kept_count == len(contracts) > 0


# Packaging


def test_every_package_folder_is_packaged() -> None:
    include = configuration()["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = {path.parent.relative_to(ROOT) for path in python_files(*PACKAGES)}
    for folder in sorted(folders):
        assert (ROOT / folder / "__init__.py").is_file(), (
            f"{folder} has modules but no __init__.py: it would not be packaged"
        )
        assert any(fnmatchcase(".".join(folder.parts), pattern) for pattern in include), (
            f"{folder} is not in packages.find"
        )
    tops = {
        path.parent.name for path in repository_files() if path.name == "__init__.py" and path.parent.parent == ROOT
    }
    assert tops - {"tests"} == set(PACKAGES)


def test_every_data_file_is_packaged() -> None:
    patterns = configuration()["tool"]["setuptools"]["package-data"]
    shipped = {path for top in PACKAGES for pattern in patterns[top] for path in (ROOT / top).glob(pattern)}
    inside = [path for path in repository_files() if path.relative_to(ROOT).parts[0] in PACKAGES]
    assert [relative(p) for p in inside if p.suffix not in {".py", ".pyi"} and p not in shipped] == []


def requirement_names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def client_configuration() -> dict[str, Any]:
    return tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))


OPTIONAL = {"service/storage/postgres.py": "postgres"}
"""Files that are only imported where an extra is installed, by the extra."""


def test_every_import_is_a_declared_dependency() -> None:
    project = configuration()["project"]
    declared = requirement_names(project["dependencies"])
    for path, extra in OPTIONAL.items():
        optional = declared | requirement_names(project["optional-dependencies"][extra])
        assert undeclared_imports([ROOT / path], set(PACKAGES), optional) == []
    always = [path for path in python_files(*PACKAGES) if relative(path) not in OPTIONAL]
    sending = ROOT / "service" / "commands" / "run" / "remote.py"  # with the client, where that is installed
    always.remove(sending)
    assert undeclared_imports([sending], {*PACKAGES, "astargate_client"}, declared) == []
    assert undeclared_imports(always, set(PACKAGES), declared) == []


def test_the_client_needs_httpx_and_pydantic_alone() -> None:
    project = client_configuration()["project"]
    assert requirement_names(project["dependencies"]) == {"httpx", "pydantic"}
    plots = requirement_names(project["optional-dependencies"]["plot"]) | {"numpy"}  # matplotlib's own
    files = [path for path in python_files("clients") if (CLIENT / "src") in path.parents]
    plotting = [path for path in files if path.name == "plot.py"]
    assert len(plotting) == 1
    own = {"astargate_client"}
    assert undeclared_imports(plotting, own, {"httpx", "pydantic"} | plots) == []
    typed_only = {"matplotlib"}  # for annotations, in replies.py
    rest = sorted(set(files) - set(plotting))
    assert undeclared_imports(rest, own | typed_only, {"httpx", "pydantic"}) == []


def undeclared_imports(paths: Iterable[Path], own: set[str], declared: set[str]) -> list[str]:
    owners = packages_distributions()
    undeclared = set()
    for path in paths:
        for module in imported_modules(path) - own - sys.stdlib_module_names:
            distributions = {name.lower().replace("_", "-") for name in owners.get(module, [module])}
            if not distributions & declared:
                undeclared.add(f"{relative(path)}: {module}")
    return sorted(undeclared)


def imported_modules(path: Path) -> set[str]:
    """Top-level names of the absolute imports in a file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    wanted = [
        requirement
        for project in (configuration()["project"], client_configuration()["project"])
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in group
    ]
    assert requirement_names(wanted) - pinned == set()
    assert [line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+==[\w.!]+", line)] == []


# Commands


def make_targets() -> set[str]:
    return set(
        re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )


def test_readme_names_only_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", readme, flags=re.DOTALL))
    mentioned = set(re.findall(r"\bmake (?:[A-Z_]+=\S+ )*([a-z][a-z-]*)", code))
    assert {"serve", "test"} <= mentioned
    assert mentioned <= make_targets()


def test_make_help_lists_every_target() -> None:
    answer = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert set(re.findall(r"^  make ([a-z-]+) +\S", answer.stdout, flags=re.MULTILINE)) == make_targets()


def test_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


# Releases


def test_server_client_and_citation_have_one_version_that_the_changelog_knows() -> None:
    version = configuration()["project"]["version"]
    assert client_configuration()["project"]["version"] == version
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert f"## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_citation_names_the_paper_as_the_readme_does() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert paper["title"] in readme
    for author in paper["authors"]:
        assert f"{author['given-names']} {author['family-names']}" in readme
    for key in ("cff-version", "message", "title", "authors"):
        assert citation[key]


def test_issue_forms_ask_for_what_is_needed() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 3
    for form in forms:
        content = yaml.safe_load(form.read_text(encoding="utf-8"))
        if form.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= content.keys()
        fields = [part["id"] for part in content["body"]]
        assert len(fields) == len(set(fields)) > 0
        assert any(part.get("validations", {}).get("required") for part in content["body"])
