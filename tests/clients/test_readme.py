"""The Python examples of both READMEs run as written, one after another as a reader would run them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from typing import Any

import matplotlib as mpl
import pytest

from tests.service.process import ROOT

README = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")


def examples_of(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


EXAMPLES = examples_of(README)


def test_examples_are_short():
    assert len(EXAMPLES) >= 6
    assert all(len(example.splitlines()) <= 12 for example in EXAMPLES)


def test_the_examples_run(server, monkeypatch, tmp_path, capsys):
    mpl.use("agg")
    monkeypatch.setenv("ASTARGATE_BASE_URL", server.url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, example in enumerate(EXAMPLES):
        code = compile(example, f"README example {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if inspect.isawaitable(running):
            asyncio.run(running)
    names["client"].close()
    printed = capsys.readouterr().out
    assert "handoff" in printed
    assert "satisfied" in printed or "✓" in printed or "✗" in printed
    assert list(tmp_path.glob("*.png"))


def test_the_example_of_the_server_s_readme_runs(server, monkeypatch, capsys):
    monkeypatch.setenv("ASTARGATE_BASE_URL", server.url)
    (example,) = examples_of((ROOT / "README.md").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(compile(example, "README example", "exec"), names)
    names["client"].close()
    assert "rows" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["ASTARGATE_BASE_URL", "ASTARGATE_API_KEY", "Retry-After", "seed", "request_id"])
def test_the_readme_tells_what_a_user_must_know(word):
    assert word in README
