"""The measures of `python -m tests.structure` on trees whose figures are known."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure import LIMITS, PACKAGES, ROOT, Tree, circles, floors, parameters, side_by_side

PASSAGE = "\n".join(f"line_{number} = {number}" for number in range(7))


def test_floors_count_the_longest_chain_and_a_circle_once():
    chain = {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert floors(chain) == 3
    assert circles(chain) == []
    circle = chain | {"c": {"b"}}
    assert circles(circle) == [["b", "c"]]
    assert floors(circle) == 2
    assert floors({}) == 0


@pytest.mark.parametrize(
    ("signature", "count"), [("self, a, b=1", 2), ("a, /, *rest, key, **more", 4), ("cls", 0), ("*, key", 1)]
)
def test_parameters_are_counted_without_self(signature, count):
    assert parameters(ast.parse(f"def f({signature}): ...").body[0]) == count


def test_a_passage_that_stands_twice_is_found(tmp_path: Path):
    (tmp_path / "decoding").mkdir()
    (tmp_path / "service").mkdir()
    (tmp_path / "decoding" / "one.py").write_text(f"import os\n{PASSAGE}\n")
    (tmp_path / "service" / "two.py").write_text(f"# a comment\nother = 1\n{PASSAGE}\nlast = 2\n")
    (tmp_path / "service" / "three.py").write_text("line_0 = 0\nline_1 = 1\n")
    tree = Tree(tmp_path)
    assert tree.repeated == [("decoding/one.py", 7), ("service/two.py", 7)]
    assert tree.folders == [("service", 2), ("decoding", 1)]


def test_lists_of_unequal_length_stand_side_by_side():
    assert list(side_by_side([[("a", 2), ("b", 1)], [("c", 3)]])) == [["2: a", "3: c"], ["1: b", ""]]


def test_the_product_keeps_to_its_measures() -> None:
    tree = Tree(ROOT)
    folders, lengths, widths = LIMITS.values()
    assert [place for place, count in tree.folders if count > folders] == []
    assert [place for place, count in tree.longest_functions if count > lengths] == []
    assert [place for place, count in tree.widest_signatures if count > widths] == []
    assert tree.circles == []


def test_imports_for_type_checkers_are_of_optional_packages_alone() -> None:
    """One of the product's own would hide a circle."""
    for path in Tree(ROOT).files:
        blocks = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.If)]
        hidden = [node for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" for node in block.body]
        imported = [
            name.name if isinstance(node, ast.Import) else node.module for node in hidden for name in node.names
        ]
        assert [name for name in imported if name.partition(".")[0] in PACKAGES] == []
