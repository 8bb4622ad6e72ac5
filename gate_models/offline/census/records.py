"""What a census has measured, as values: its prompts, their recorded runs, and the outcomes of continuations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decoding.records.trace import Trace
from gate_models.committor.choices import Coupling
from gate_models.offline.census.plan import run_name
from gate_models.offline.runs.trace_codec import decode_trace


class CensusError(ValueError):
    """A census folder that cannot be read or does not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A recorded run. `trace_bytes` decodes to its trace with `trace`."""

    task: str
    prompt: str
    family: str | None
    split: str
    constraint: Mapping[str, Any]
    prompt_tokens: int
    gen_length: int
    steps: int
    weight: float
    repeat: int
    run: str
    success: bool
    score: float
    rows: int
    tokens: tuple[int, ...]
    trace_bytes: bytes

    @property
    def trace(self) -> Trace:
        """StepStats of every step (parsed anew at each call)."""
        return decode_trace(self.trace_bytes)

    def row(self) -> dict[str, Any]:
        """As a row of `RUNS`."""
        out = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "trace_bytes"}
        return out | {"constraint": json.dumps(self.constraint), "trace": self.trace_bytes}


@dataclass(frozen=True, slots=True)
class CellRecord:
    """Rollouts of one arm from one state. `scores` [N] and `tokens` [N, L] are None in the compact form."""

    kind: str
    run: str
    weight: float
    step: int
    fractions: tuple[float, ...]
    committed_fraction: float
    arm: str
    tail_width: int
    first: int
    outcomes: NDArray[np.bool_]
    score_sum: float
    rows: int
    coupling: Coupling
    scores: NDArray[np.float32] | None
    tokens: NDArray[np.int32] | None

    @property
    def count(self) -> int:
        """N."""
        return int(self.outcomes.size)

    @property
    def successes(self) -> int:
        return int(self.outcomes.sum())

    @property
    def rate(self) -> float:
        return self.successes / self.count

    def row(self, prompt: tuple[str, str, int, int]) -> dict[str, Any]:
        """As a row of `CELLS`, for (task, prompt, gen_length, steps)."""
        names = (
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
        )
        return dict(zip(("task", "prompt", "gen_length", "steps"), prompt, strict=True)) | {
            **{name: getattr(self, name) for name in names},
            "fractions": list(self.fractions),
            "count": self.count,
            "successes": self.successes,
            "outcomes": np.packbits(self.outcomes).tobytes(),
            "coupling": self.coupling,
            "scores": None if self.scores is None else self.scores.tolist(),
            "tokens": None if self.tokens is None else self.tokens.ravel().tolist(),
        }

    @staticmethod
    def joined(parts: Sequence[CellRecord]) -> CellRecord:
        """One cell of batches of its rollouts, by their numbers. Raises `CensusError` where some are missing."""
        parts = sorted(parts, key=lambda part: part.first)
        at = 0
        for part in parts:
            if part.first > at:
                raise CensusError(
                    f"cell {part.kind} {part.arm} at step {part.step} lacks rollouts {at} to {part.first - 1}: a shard "
                    "is gone; run the same astargate census again to measure them"
                )
            if part.first < at:
                raise CensusError(
                    f"cell {part.kind} {part.arm} at step {part.step} has rollouts {part.first} to {at - 1} twice: "
                    "shards of two folders were mixed"
                )
            at += part.count
        if len(parts) == 1:
            return parts[0]
        scores = [part.scores for part in parts if part.scores is not None]
        tokens = [part.tokens for part in parts if part.tokens is not None]
        first = parts[0]
        return CellRecord(
            first.kind,
            first.run,
            first.weight,
            first.step,
            first.fractions,
            first.committed_fraction,
            first.arm,
            first.tail_width,
            0,
            np.concatenate([part.outcomes for part in parts]),
            sum(part.score_sum for part in parts),
            sum(part.rows for part in parts),
            first.coupling,
            np.concatenate(scores) if len(scores) == len(parts) else None,
            np.concatenate(tokens) if len(tokens) == len(parts) else None,
        )


CellKey = tuple[str, str, int, str, float]
"""(kind, run, step, arm, weight)."""


def cell_key(cell: CellRecord) -> CellKey:
    """What names a cell within its prompt."""
    return cell.kind, cell.run, cell.step, cell.arm, cell.weight


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """Everything measured for one prompt."""

    runs: Mapping[str, RunRecord]
    cells: Mapping[CellKey, CellRecord]

    @property
    def any_run(self) -> RunRecord:
        """Some run: task, prompt, split, constraint and canvas are the same in all."""
        return next(iter(self.runs.values()))

    @property
    def key(self) -> tuple[str, str]:
        """(task, prompt id)."""
        return self.any_run.task, self.any_run.prompt

    def freeze(self, run: str, arm: str, fractions: Iterable[float] | None = None) -> list[CellRecord]:
        """Freeze cells of a run and arm along the grid, in order; only those on `fractions` where given."""
        wanted = None if fractions is None else set(fractions)
        cells = [
            cell
            for cell in self.cells.values()
            if cell.kind == "freeze"
            and cell.run == run
            and cell.arm == arm
            and (wanted is None or wanted.intersection(cell.fractions))
        ]
        return sorted(cells, key=lambda cell: cell.step)

    def sweep(self) -> dict[float, CellRecord]:
        """Fresh cells by guidance weight."""
        return {cell.weight: cell for cell in self.cells.values() if cell.kind == "fresh"}


@dataclass(frozen=True, slots=True)
class Census:
    """A census: its manifest and the prompts, in order of (task, prompt id)."""

    manifest: Mapping[str, Any]
    prompts: tuple[PromptRecord, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.manifest["settings"]
        return settings

    @property
    def main_run(self) -> str:
        """Name of the recorded run that the freeze cells continue."""
        return run_name(self.settings["weight"], 0)

    @property
    def grid(self) -> tuple[float, ...]:
        """The freeze grid that a* and fates are read on; cells may lie on further fractions."""
        return tuple(self.settings["grid"])

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.key[0] for prompt in self.prompts))

    def of(self, task: str, split: str | None = None) -> list[PromptRecord]:
        """Prompts of a task (and split)."""
        return [p for p in self.prompts if p.key[0] == task and split in (None, p.any_run.split)]
