"""Where a census lives: a folder of shards, or its compact form; `load_census` reads both.

Run folder: `manifest.json` and `shards/<name>/{runs,cells}.parquet`. A shard is written under another name and renamed,
so that it is there whole or not at all. Compact folder: `manifest.json`, `runs.parquet`, `cells.parquet`.

`runs`, one row a recorded run (statistics and argmax fill of every step):
  task, prompt, family, split, constraint (JSON), prompt_tokens, gen_length, steps,
  weight, repeat, run ("w2#0": weight and repeat), success, score, rows, tokens [L], trace (see `runs.trace_codec`).
`cells`, one row a batch of rollouts of one arm from one state:
  task, prompt, gen_length, steps, weight, run (that the state is of; "" for fresh runs),
  kind ("freeze": continue the run's state; "fresh": from the empty canvas, a weight sweep's cell; "switch": fresh runs
  that hand off at `step`), step, fractions (grid fractions that fall on the step), committed_fraction,
  arm ("guided", "base", "base-k8"), tail_width, first (number of the first rollout), count (N), successes, score_sum,
  rows (forward evaluations), outcomes (packed bits), coupling, scores [N], tokens [N * L].
The compact form leaves out the cells' tokens and scores and rounds the traces.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gate_models.offline.census.records import (
    CellKey,
    CellRecord,
    Census,
    CensusError,
    PromptRecord,
    RunRecord,
    cell_key,
)
from gate_models.offline.runs.result_file import write_json
from gate_models.offline.runs.trace_codec import encode_trace

__all__ = ["Census", "CensusError", "load_census"]

RUNS: Final = pa.schema(
    [
        ("task", pa.string()),
        ("prompt", pa.string()),
        ("family", pa.string()),
        ("split", pa.string()),
        ("constraint", pa.string()),
        ("prompt_tokens", pa.int32()),
        ("gen_length", pa.int32()),
        ("steps", pa.int32()),
        ("weight", pa.float64()),
        ("repeat", pa.int32()),
        ("run", pa.string()),
        ("success", pa.bool_()),
        ("score", pa.float64()),
        ("rows", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("trace", pa.binary()),
    ]
)
CELLS: Final = pa.schema(
    [
        ("task", pa.string()),
        ("prompt", pa.string()),
        ("gen_length", pa.int32()),
        ("steps", pa.int32()),
        ("weight", pa.float64()),
        ("run", pa.string()),
        ("kind", pa.string()),
        ("step", pa.int32()),
        ("fractions", pa.list_(pa.float64())),
        ("committed_fraction", pa.float64()),
        ("arm", pa.string()),
        ("tail_width", pa.int32()),
        ("first", pa.int32()),
        ("count", pa.int32()),
        ("successes", pa.int32()),
        ("score_sum", pa.float64()),
        ("rows", pa.int64()),
        ("outcomes", pa.binary()),
        ("coupling", pa.string()),
        ("scores", pa.list_(pa.float32())),
        ("tokens", pa.list_(pa.int32())),
    ]
)
TABLES: Final = {"runs": RUNS, "cells": CELLS}
HEAVY: Final = ("scores", "tokens")
"""Columns of `cells` that the compact form leaves out."""
MANIFEST: Final = "manifest.json"
PromptKey = tuple[str, str]
"""(task, prompt id)."""


# -- writing ---------------------------------------------------------------------------------------------------------


def cell_rows(run: RunRecord, cells: Iterable[CellRecord]) -> list[dict[str, Any]]:
    """Rows of `CELLS` for cells of a run's prompt."""
    return [cell.row((run.task, run.prompt, run.gen_length, run.steps)) for cell in cells]


def write_shard(folder: Path, name: str, runs: Sequence[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> None:
    """Write a shard whole or not at all, also against a power cut. One that is there already is kept."""
    final = folder / "shards" / name
    if final.exists():
        return
    partial = folder / "shards" / f".{name}.{os.getpid()}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for table, rows in (("runs", runs), ("cells", cells)):
        path = partial / f"{table}.parquet"
        _write(path, pa.Table.from_pylist(list(rows), schema=TABLES[table]))
        with path.open("rb") as file:
            os.fsync(file.fileno())
    os.replace(partial, final)


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd", compression_level=9)


def is_compact(folder: Path) -> bool:
    """Whether a folder holds the compact form."""
    return (folder / "cells.parquet").exists()


def check_compact(folder: Path, out: Path | None = None) -> None:
    """Raises `CensusError` where the compact form would hide the shards of a run folder, be they there already or, in
    `out`, on their way.
    """
    if (folder / "shards").exists() or (out is not None and folder.resolve() == out.resolve()):
        raise CensusError(f"{folder} holds the shards of a census; write its small form to another folder")


def remove_partials(folder: Path) -> None:
    """Delete what a killed run left half-written. Only for the one process that owns the folder."""
    for path in (*folder.glob(".*.partial"), *folder.glob("shards/.*.partial")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_compact(census: Census, folder: Path) -> None:
    """Write the compact form: everything but the cells' tokens and scores, traces at 4 significant digits.

    Raises `CensusError` where the folder holds a census's shards.
    """
    check_compact(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for prompt in census.prompts:
        runs += [run.row() | {"trace": encode_trace(run.trace, digits=4)} for run in prompt.runs.values()]
        light = [replace(cell, scores=None, tokens=None) for cell in prompt.cells.values()]
        cells += cell_rows(prompt.any_run, light)
    written = []
    for name, rows in (("runs", runs), ("cells", cells)):
        partial = folder / f".{name}.{os.getpid()}.partial"
        _write(partial, pa.Table.from_pylist(rows, schema=TABLES[name]))
        written.append((partial, folder / f"{name}.parquet"))
    for partial, final in written:
        os.replace(partial, final)
    write_json(folder / MANIFEST, census.manifest)


# -- reading ---------------------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a census folder; None where there is none. Raises `CensusError` where it cannot be read."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise CensusError(f"{path} is not JSON; choose another --out folder or delete it") from None
    if not isinstance(content, dict) or "settings" not in content:
        raise CensusError(f"{path} is no census manifest; choose another --out folder")
    return content


def load_census(folder: str | Path, *, heavy: bool = True) -> Census:
    """A census from a run folder or its compact form, however far it has come.

    Without `heavy` the cells' tokens and scores stay on disk. Raises `CensusError`.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise CensusError(f"{folder} is no census: it has no {MANIFEST}; make one with astargate census --out {folder}")
    places = [folder] if is_compact(folder) else shard_folders(folder)
    runs: dict[PromptKey, dict[str, RunRecord]] = defaultdict(dict)
    cells: dict[PromptKey, dict[CellKey, list[CellRecord]]] = defaultdict(lambda: defaultdict(list))
    for place in places:
        for row in _rows(place, "runs"):
            record = _run(row)
            runs[record.task, record.prompt][record.run] = record
        for row in _rows(place, "cells", heavy=heavy):
            cell = _cell(row)
            cells[row["task"], row["prompt"]][cell_key(cell)].append(cell)
    if lost := sorted(cells.keys() - runs.keys()):
        raise CensusError(
            f"{folder} holds cells of {'/'.join(lost[0])} without a run that they continue: a shard is gone; run the "
            "same astargate census again to measure it anew"
        )
    prompts = tuple(
        PromptRecord(
            dict(sorted(runs[key].items())),
            {name: CellRecord.joined(parts) for name, parts in sorted(cells[key].items())},
        )
        for key in sorted(runs)
    )
    return Census(manifest, prompts)


def shard_folders(folder: Path) -> list[Path]:
    """Finished shards, by name."""
    return sorted(path for path in (folder / "shards").glob("*") if not path.name.startswith("."))


def _rows(folder: Path, table: str, *, heavy: bool = True) -> list[dict[str, Any]]:
    names = [name for name in TABLES[table].names if heavy or table != "cells" or name not in HEAVY]
    try:
        rows: list[dict[str, Any]] = pq.read_table(folder / f"{table}.parquet", columns=names).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise CensusError(
            f"{folder / table}.parquet cannot be read ({error}); delete that folder and run again"
        ) from None
    return rows


def _run(row: dict[str, Any]) -> RunRecord:
    trace = row.pop("trace")
    constraint = json.loads(row.pop("constraint"))
    return RunRecord(**row | {"tokens": tuple(row["tokens"]), "constraint": constraint, "trace_bytes": trace})


def _cell(row: dict[str, Any]) -> CellRecord:
    count, tokens, scores = row["count"], row.get("tokens"), row.get("scores")
    return CellRecord(
        **{name: row[name] for name in _PLAIN},
        fractions=tuple(row["fractions"]),
        outcomes=np.unpackbits(np.frombuffer(row["outcomes"], np.uint8), count=count).astype(bool),
        scores=None if scores is None else np.array(scores, dtype=np.float32),
        tokens=None if tokens is None else np.array(tokens, dtype=np.int32).reshape(count, row["gen_length"]),
    )


_PLAIN: Final = (
    "kind",
    "run",
    "weight",
    "step",
    "committed_fraction",
    "arm",
    "tail_width",
    "first",
    "score_sum",
    "rows",
    "coupling",
)


def digest(census: Census) -> str:
    """SHA-256 of everything measured (not of how it was cut into shards): equal censuses have equal digests."""
    digested = hashlib.sha256()
    for prompt in census.prompts:
        for run in prompt.runs.values():
            digested.update(json.dumps(run.row() | {"trace": ""}, sort_keys=True).encode() + run.trace_bytes)
        for row in cell_rows(prompt.any_run, prompt.cells.values()):
            digested.update(json.dumps(row | {"outcomes": row["outcomes"].hex()}, sort_keys=True).encode())
    return digested.hexdigest()
