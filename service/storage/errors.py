"""The error of a database that is away, for those who answer it without loading a database's driver."""

from __future__ import annotations


class DatabaseError(RuntimeError):
    """The database cannot be opened or reached; the message says what to do."""
