"""The house rules that no linter checks: import arrows, packaging, portability, file sizes, the README's commands."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from importlinter import api
from importlinter.application import rendering, use_cases
from importlinter.application.user_options import UserOptions

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("decoding", "gate_models", "service")
CLIENT = ROOT / "clients" / "python"
MAX_LINES = 300
# Written in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(("/wo" + "rk/", r"(?<!\w)\.libr" + "ary/", "/ro" + "ot/", "/opt/wh" + "eels", "/opt/py" + "pi"))
)
REGISTRIES = re.compile(
    "|".join(("py" + r"pi\.org", "download\\.py" + r"torch\.org", "files\\.python" + "hosted", "registry\\.np" + "mjs"))
)


@cache
def repository_files() -> tuple[Path, ...]:
    """Files that are or would be committed; in a copy without git, everything outside hidden and generated folders."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        found = [ROOT / name for name in listing.split("\0") if name]
    else:
        found = list(_walk())
    return tuple(sorted(path for path in found if path.is_file()))


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


def on_disk(module: str) -> bool:
    paths = [top.joinpath(*module.split(".")) for top in (ROOT, CLIENT / "src")]
    return any(path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() for path in paths)


# Import rules


def import_options() -> UserOptions:
    """The import-linter configuration, reduced to the modules that exist: a tree in the making is checked too."""
    options = deepcopy(api.read_configuration(str(ROOT / "pyproject.toml")))
    session, contracts = options["session_options"], options["contracts_options"]
    session["root_packages"] = [name for name in session["root_packages"] if on_disk(name)]
    for contract in contracts:
        for key in {"layers", "source_modules"} & contract.keys():
            contract[key] = [name for name in contract[key] if on_disk(name)]
    kept = [contract for contract in contracts if contract.get("layers") or contract.get("source_modules")]
    return UserOptions(session_options=session, contracts_options=kept)


def test_import_rules_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(CLIENT / "src"))
    use_cases._register_built_in_contract_types()
    report = use_cases.create_report(import_options(), cache_dir=None)
    rendering.render_report(report)
    assert not report.contains_failures, capsys.readouterr().out
    assert report.kept_count > 0


def test_import_rules_name_modules_that_exist() -> None:
    linter = configuration()["tool"]["importlinter"]
    named = {*linter["root_packages"], *PACKAGES}
    for contract in linter["contracts"]:
        named.update(contract.get("layers", []), contract.get("source_modules", []))
    assert sorted(name for name in named if not on_disk(name)) == []


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


def test_every_import_is_a_declared_dependency() -> None:
    declared = requirement_names(configuration()["project"]["dependencies"])
    assert undeclared_imports(python_files(*PACKAGES), set(PACKAGES), declared) == []


def test_the_client_needs_httpx_and_pydantic_alone() -> None:
    project = client_configuration()["project"]
    assert requirement_names(project["dependencies"]) == {"httpx", "pydantic"}
    plots = requirement_names(project["optional-dependencies"]["plot"]) | {"numpy"}  # matplotlib's own
    files = [path for path in python_files("clients") if (CLIENT / "src") in path.parents]
    plotting = [path for path in files if path.name in {"plot.py", "curve_plot.py"}]
    assert len(plotting) == 2
    own = {"astargate_client"}
    assert undeclared_imports(plotting, own, {"httpx", "pydantic"} | plots) == []
    typed_only = {"matplotlib"}  # for annotations, in behaviour.py
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


# Portability, size, commands


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRIES], ids=["machine-paths", "registries"])
def test_nothing_is_tied_to_one_machine(pattern: re.Pattern[str]) -> None:
    hits = []
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" in content[:8192]:
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
            if pattern.search(line):
                hits.append(f"{relative(path)}:{number}: {line.strip()[:100]}")
    assert hits == []


def test_python_files_stay_small() -> None:
    sizes = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert sizes
    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}


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
