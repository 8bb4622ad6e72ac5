"""Surprisals on disk by text: a second pass over known texts costs no forward."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gate_models.offline.judge.model.language_model import LanguageModel, Surprisals, written

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS readings"
    " (model TEXT, text TEXT, ids BLOB, nats BLOB, odd BLOB, last BLOB, PRIMARY KEY (model, text)) WITHOUT ROWID"
)

_KINDS: Final = ("<i4", "<f4", "<f4", "<f4")


def _parts(value: Surprisals) -> tuple[NDArray[np.generic], ...]:
    return value.ids, value.nats, value.odd, value.end


def text_hash(text: str) -> str:
    """Of the form that is scored."""
    return hashlib.sha256(written(text).encode()).hexdigest()[:32]


class Cached:
    """A language model that asks its file first. Several processes may share the file."""

    def __init__(self, model: LanguageModel, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._model = model
        self._file = sqlite3.connect(path, timeout=60.0)
        with self._file:
            self._file.execute(_TABLE)

    @property
    def name(self) -> str:
        return self._model.name

    def surprisals(self, texts: Sequence[str]) -> list[Surprisals]:
        keys = [text_hash(text) for text in texts]
        surprisals = self._read(set(keys))
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in surprisals}
        if new:
            fresh = dict(zip(new, self._model.surprisals(list(new.values())), strict=True))
            self._write(fresh)
            surprisals |= fresh
        return [surprisals[key] for key in keys]

    def close(self) -> None:
        self._file.close()

    def _read(self, keys: set[str]) -> dict[str, Surprisals]:
        query = "SELECT ids, nats, odd, last FROM readings WHERE model = ? AND text = ?"
        surprisals = {}
        for key in keys:
            row = self._file.execute(query, (self.name, key)).fetchone()
            if row is not None:
                columns = zip(row, _KINDS, strict=True)
                surprisals[key] = Surprisals(*(np.frombuffer(blob, kind) for blob, kind in columns))
        return surprisals

    def _write(self, fresh: dict[str, Surprisals]) -> None:
        rows = [
            (self.name, key, *(part.astype(kind).tobytes() for part, kind in zip(_parts(value), _KINDS, strict=True)))
            for key, value in fresh.items()
        ]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?)", rows)
