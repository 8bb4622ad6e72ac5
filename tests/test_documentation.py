"""The pages: every relative link leads to a file, or a heading of it, and every command line is one that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from service.cli import app

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?<![\w/])(?<!install )astargate ((?!\$)[^#|;&)]*)")
"""What follows the command's name; not helm's release or chart of that name."""
SKIPPED = {"build", "dist", "runs", "node_modules"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in SKIPPED for part in path.relative_to(ROOT).parts)
)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_resolves(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in LINK.findall(prose):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in headings(linked)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("folder", ["docs", "docs/results"])
def test_the_index_names_every_page_of_a_folder_once(folder: str) -> None:
    index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert {name: index.count(f"]({name})") for name in pages} == dict.fromkeys(pages, 1)


def test_the_page_of_the_structure_names_paths_that_exist() -> None:
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:service|decoding|gate_models|tests|deploy)/[\w/.]+)`", page)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_readme_is_read_in_a_minute_and_keeps_the_places_that_are_written_anew() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 160
    for block in ("answer", "headline"):
        assert re.search(rf"<!-- {block}: begin -->\n.+\n<!-- {block}: end -->", readme, flags=re.DOTALL), block


def command_lines(page: Path) -> list[list[str]]:
    """The words of every `astargate` command in the page's code blocks; a line that ends with a backslash goes on."""
    blocks = re.findall(r"```[a-z]*\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [part for line in lines for part in COMMAND.findall(line)]
    return [command.split() for command in commands]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_line_names_commands_and_options_that_exist(page: Path) -> None:
    unknown = []
    for line in command_lines(page):
        command: Any = typer.main.get_command(app)
        words = list(line)
        while hasattr(command, "commands"):
            name = "run" if not words or (words[0].startswith("-") and "run" in command.commands) else words.pop(0)
            if name not in command.commands:
                unknown.append(" ".join(line))
                break
            command = command.commands[name]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options |= {"--help", *getattr(command.callback, "old_names", {})}
        unknown += [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
    assert unknown == []
