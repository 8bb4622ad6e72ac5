"""The Markdown table writer."""

from __future__ import annotations

import pytest

from gate_models.offline.runs.markdown import table


def test_heads_rule_and_rows() -> None:
    assert table(["a", "b"], [("1", "2"), ("", "4")]) == "| a | b |\n|---|---|\n| 1 | 2 |\n|  | 4 |"


def test_a_table_without_rows_is_its_heads() -> None:
    assert table(["a"], []) == "| a |\n|---|"


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        table(["a", "b"], [("1",)])
