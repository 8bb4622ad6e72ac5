"""The shadow audit's pairs as a file, for retraining: one line or row a pair, in the order of their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Row, select

from service.shadow_audit.tables import AUDIT_COLUMNS, AUDITS, GATES
from service.storage.database import Database

FORMATS: Final = (".jsonl", ".parquet")
BATCH: Final = 1000
_GATE: Final = ("family", "source", "version", "tail_width", "settings")
_JOB: Final = ("constraint", "prompt_ids", "gen_length", "steps", "block_length", "policy", "sampling", "noise")
_STATE: Final = ("canvas", "place")
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "request_id", "model_hash", "family", "source", "version", "served")),
        *((name, pa.int64()) for name in ("sample", "sequence", "tail_width", "step", "rows")),
        *((name, pa.float64()) for name in ("created", "finished")),
        *((name, pa.bool_()) for name in ("handoff_ok", "full_ok")),
        *((name, pa.string()) for name in ("prompt", "handoff_text", "full_text", "feature_schema")),
        # Their shape is the constraint's, the model's or the feature schema's: JSON keeps one schema for all.
        *((name, pa.string()) for name in ("settings", "decision", "features", *_JOB, *_STATE)),
    ]
)
_AS_JSON: Final = ("settings", "decision", "features", *_JOB, *_STATE)


def export(database: Database, out: Path, *, families: Sequence[str] = (), versions: Sequence[str] = ()) -> int:
    """Write the complete pairs of some families and gate versions (none named: all); how many there were.

    Prompts, texts and features are null where `audit_retention_days` has passed. Raises `DatabaseError`, `OSError`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    batches = _batches(_rows(database, families, versions))
    if out.suffix == ".jsonl":
        with out.open("w", encoding="utf-8") as file:
            return sum(file.write(json.dumps(row) + "\n") > 0 for batch in batches for row in batch)
    count = 0
    with pq.ParquetWriter(out, _SCHEMA) as writer:
        for batch in batches:
            flat = [{name: _flat(name, value) for name, value in row.items()} for row in batch]
            writer.write_table(pa.Table.from_pylist(flat, _SCHEMA))
            count += len(batch)
    return count


def _rows(database: Database, families: Sequence[str], versions: Sequence[str]) -> Iterator[dict[str, Any]]:
    gate = [GATES.c[name].label(f"gate_{name}") for name in _GATE]
    query = select(*AUDIT_COLUMNS, *gate).join(GATES, GATES.c.id == AUDITS.c.gate_id)
    query = query.where(AUDITS.c.sequence.is_not(None)).order_by(AUDITS.c.sequence)
    if families:
        query = query.where(GATES.c.family.in_(families))
    if versions:
        query = query.where(GATES.c.version.in_(versions))
    with database.read() as connection:
        for row in connection.execute(query.execution_options(yield_per=BATCH)):
            yield _exported(row)


def _exported(row: Row[Any]) -> dict[str, Any]:
    recipe: Mapping[str, Any] = row.recipe or {}
    texts: Mapping[str, str] = row.texts or {}
    seen: Mapping[str, Any] = row.features or {}
    names = ("id", "request_id", "sample", "sequence", "model_hash", "created", "finished", "served")
    return {
        **{name: getattr(row, name) for name in names},
        **{name: getattr(row, f"gate_{name}") for name in _GATE},
        **{name: getattr(row, name) for name in ("prompt", "step", "handoff_ok", "full_ok", "rows", "decision")},
        "handoff_text": texts.get("handoff"),
        "full_text": texts.get("full"),
        "feature_schema": seen.get("schema"),
        "features": seen.get("values"),
        **{name: recipe.get(name) for name in (*_JOB, *_STATE)},
    }


def _flat(name: str, value: Any) -> Any:
    return json.dumps(value) if name in _AS_JSON and value is not None else value


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
