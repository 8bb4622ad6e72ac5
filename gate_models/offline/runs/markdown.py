"""Markdown tables: the one writer that every report of this project uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Heads and rows as a Markdown table, without a newline at its end. Cells are taken as they are.

    Raises `ValueError` where a row has another number of cells than there are heads.
    """
    lines = [line(heads), "|" + "---|" * len(heads)]
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(heads)} columns: {line(row)}")
        lines.append(line(row))
    return "\n".join(lines)
