"""docs/results/reliability.md: every test that it names exists, and the page is what the command writes."""

from __future__ import annotations

import ast
import json

import pytest

from tests.service.load.reliability import FAULTS, FIGURES, INJECTED, LATER, PAGE, page
from tests.service.process import ROOT


@pytest.mark.parametrize("node", sorted({test for _, test in (*FAULTS, *LATER, *INJECTED)}))
def test_every_fault_is_held_by_a_test(node: str) -> None:
    path, _, name = node.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}


def test_the_page_is_the_one_that_is_written() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(FIGURES.read_text(encoding="utf-8")))


def test_the_soak_found_nothing() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert figures["requests"] >= 10_000
    assert not [kind for kind in figures["outcomes"] if kind.startswith(("5", "malformed", "connection"))]
