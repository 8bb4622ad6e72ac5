"""A database row as a frozen value: the base of everything that a table's rows are read into."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from sqlalchemy import Column, Row, Table


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """A dataclass whose fields are named after columns of its table."""

    @classmethod
    def columns(cls, table: Table) -> tuple[Column[Any], ...]:
        """The columns that a query must select, in the order of the fields."""
        return tuple(table.c[item.name] for item in fields(cls))

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        """The record of a row that has at least these columns."""
        return cls(*(getattr(row, item.name) for item in fields(cls)))
