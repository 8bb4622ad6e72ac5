"""`astargate census run`: continues the runs of many prompts on local processes. It can be stopped, resumed and grown.

One seed gives one census, whatever the number of workers or the shard size (in invariant mode to the last bit, on one
machine). A finished shard is never touched again; a killed run loses the shards in flight.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow.parquet as pq
from tqdm import tqdm

from gate_models.offline.census.plan import Done, WorkItem, plan, run_name, shards_of
from gate_models.offline.census.records import CensusError
from gate_models.offline.census.settings import IDENTITY, CensusSettings
from gate_models.offline.census.store import MANIFEST, is_compact, read_manifest, remove_partials, shard_folders
from gate_models.offline.census.worker import CensusWorker, ShardDone
from gate_models.offline.runs.process_pool import PoolStoppedError, Processes
from gate_models.offline.runs.result_file import write_json
from gate_models.offline.runs.versions import software

logger = logging.getLogger(__name__)
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class CensusProgress:
    """What a run of the census did."""

    prompts: int
    """Prompts worked on."""
    rows: int
    seconds: float
    left: int
    """Prompts with work left (0 unless stopped)."""

    @property
    def stopped(self) -> bool:
        return self.left > 0


def run(settings: CensusSettings, out: Path, *, workers: int = 1, shard: int = 2) -> CensusProgress:
    """Do what is left of a census in folder `out`; on SIGTERM or Ctrl-C it stops at once and says what is left.

    Raises `ValueError` (`CensusError` among them) for settings that cannot be or do not fit what is in the folder,
    `WorkerError` where a worker fails.
    """
    if shard < 1:
        raise ValueError("a shard holds at least one prompt")
    plan(settings, {})  # unknown subtasks are said before a model is loaded
    _check_folder(out)
    (out / "shards").mkdir(parents=True, exist_ok=True)
    with _only_one(out), Processes[tuple[WorkItem, ...], ShardDone](CensusWorker, (settings, out), workers) as pool:
        remove_partials(out)
        with _stopped_by_signals(pool):
            try:
                return _run(settings, out, pool, shard)
            except PoolStoppedError:
                return CensusProgress(0, 0, 0.0, len(plan(settings, read_done(out, settings))))


def _run(
    settings: CensusSettings, out: Path, pool: Processes[tuple[WorkItem, ...], ShardDone], shard: int
) -> CensusProgress:
    manifest = _manifest(settings, out, pool.ready())
    items = plan(settings, read_done(out, settings))
    write_json(out / MANIFEST, manifest)
    total, began = sum(item.rows for item in items), time.monotonic()
    prompts = rows = 0
    bar = tqdm(total=total, unit="row", unit_scale=True, desc="census", mininterval=1.0, smoothing=0.02)
    try:
        bar.set_postfix_str(f"0/{len(items)} prompts")
        for done in pool.map(shards_of(items, shard), bar.update, tick=_ticking(bar)):
            prompts, rows = prompts + len(done.prompts), rows + done.rows
            bar.set_postfix_str(f"{prompts}/{len(items)} prompts")
            write_json(out / MANIFEST, manifest | {"progress": _progress(out, prompts, len(items))})
    except PoolStoppedError:
        pass
    finally:
        bar.close()
    return CensusProgress(prompts, rows, time.monotonic() - began, len(items) - prompts)


def _ticking(bar: tqdm) -> Callable[[], None]:
    """Keep the clock of a bar on a terminal going; in a log every redraw would be a line's worth of text."""
    return bar.refresh if sys.stderr.isatty() else lambda: None


def _progress(out: Path, prompts: int, planned: int) -> dict[str, int]:
    return {"shards": len(shard_folders(out)), "prompts_of_this_run": prompts, "planned_for_this_run": planned}


def _check_folder(out: Path) -> None:
    """Raises `CensusError` where what is in a folder cannot be gone on with, whatever the settings."""
    if is_compact(out):
        raise CensusError(
            f"{out} holds the small form of a census, which cannot be resumed or grown; choose another --out folder"
        )
    if read_manifest(out) is None and shard_folders(out):
        raise CensusError(
            f"{out} holds shards without a {MANIFEST}, so their settings are not known; put it back or choose another "
            "--out folder"
        )


def _manifest(settings: CensusSettings, out: Path, model: dict[str, str]) -> dict[str, Any]:
    """The folder's manifest, grown by these settings. Raises `CensusError` where they do not fit it."""
    asked = asdict(settings) | {"subtasks": list(settings.subtasks)}
    code = code_version()
    fresh = {**model, "seed": settings.seed, "settings": asked, "code": code, "codes": [code]}
    manifest = read_manifest(out)
    if manifest is None:
        return fresh
    if manifest["model_hash"] != model["model_hash"]:
        raise CensusError(
            f"{out} holds a census of model {manifest['model']} ({manifest['model_hash']}), this is {model['model']} "
            f"({model['model_hash']}); choose another --out folder"
        )
    for name in IDENTITY:
        kept, new = manifest["settings"].get(name), asked[name]
        if kept != (list(new) if isinstance(new, tuple) else new):
            raise CensusError(
                f"{out} was made with {name} = {kept}, this run asks for {new}; choose another --out folder"
            )
    known = manifest["settings"]
    grown: dict[str, Any] = {
        name: sorted({*known[name], *asked[name]}) for name in ("extra_weights", "extra_grid", "tail_widths", "sweep")
    }
    grown["subtasks"] = list(dict.fromkeys([*known["subtasks"], *asked["subtasks"]]))
    grown |= {name: max(known[name], asked[name]) for name in ("rollouts", "repeats", "switch")}
    prompts = known["prompts"], asked["prompts"]
    grown["prompts"] = None if None in prompts else max(prompts)
    codes = manifest["codes"]
    if code not in codes:
        logger.warning("%s was begun by other code (%s); the manifest names both", out, codes[-1])
        codes = [*codes, code]
    return {**fresh, "settings": asked | grown, "codes": codes}


def code_version() -> dict[str, str]:
    """Versions that a rollout depends on; `decoder` is a digest of the decoder's source."""
    digest = hashlib.sha256()
    root = Path(str(files("decoding")))
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return {**software(), "decoder": digest.hexdigest()[:16]}


def read_done(out: Path, settings: CensusSettings) -> dict[tuple[str, str], Done]:
    """What the folder's shards hold, by (task, prompt id)."""
    done: dict[tuple[str, str], Done] = defaultdict(Done)
    main, names = run_name(settings.weight, 0), ["task", "prompt", "kind", "step", "arm", "weight"]
    for folder in shard_folders(out):
        for row in _columns(folder / "runs.parquet", ["task", "prompt", "run", "trace"]):
            entry = done[row["task"], row["prompt"]]
            entry.runs.add(row["run"])
            if row["run"] == main:
                entry.recorded = row["trace"]
        for row in _columns(folder / "cells.parquet", [*names, "first", "count"]):
            key = row["kind"], row["step"], row["arm"], row["weight"]
            done[row["task"], row["prompt"]].rollouts[key].append((row["first"], row["count"]))
    return dict(done)


def _columns(path: Path, names: list[str]) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, columns=names).to_pylist()
    except (OSError, ValueError) as error:
        raise CensusError(f"{path} cannot be read ({error}); delete {path.parent} and run again") from None
    return rows


@contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Hold the folder's lock: two runs on one folder would do the same work twice."""
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CensusError(
                f"another census is running in {out}; wait for it or choose another --out folder"
            ) from None
        yield


@contextmanager
def _stopped_by_signals(pool: Processes[Any, Any]) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        pool.stop()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
