"""A census becomes what gates are trained on: features of recorded runs, labels of prompts, the value of guidance.

One `FamilyData` holds a family on one canvas. Features are causal, one row a (run, checkpoint): the prefix before the
checkpoint and nothing later; `whole` has the paper's whole-run features of the same runs. Freeze cells continue the
main run, so V and q0 belong to its states; every other recorded run (other weights, the repetition) has the prompt's
labels, as in the paper (Appendix H.1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from decoding.gates.protocol import GateView, Regime
from decoding.sampling.block_schedule import planned_rows
from gate_models.features import vector
from gate_models.features.argmax_fill import TextReader
from gate_models.features.prefix import view_before
from gate_models.forest.heads import MIN_LEAF
from gate_models.offline.census.labels import labels_of
from gate_models.offline.census.records import Census, PromptRecord, RunRecord

SPLITS: Final = ("train", "calibrate", "audit")


@dataclass(frozen=True, slots=True)
class FamilyData:
    """P prompts, R recorded guided runs (w > 0), J checkpoints, D vector."""

    family: str
    task: str
    gen_length: int
    steps: int
    regime: Regime
    """Of the main runs, at K = 1."""
    checkpoints: tuple[float, ...]
    at: NDArray[np.int64]
    """[J]: steps of the checkpoints."""
    prompts: tuple[str, ...]
    split: NDArray[np.str_]
    """[P]"""
    fate: NDArray[np.str_]
    """[P]: handoff fate; "" where the freeze cells are missing."""
    a_star: NDArray[np.float64]
    """[P]: measured horizon of prompts of the handoff fate, as a fraction of the steps; NaN elsewhere."""
    guided: NDArray[np.float64]
    """[P, J]: qg of the main run's states; NaN where there is no cell."""
    base: dict[int, NDArray[np.float64]]
    """By tail width: q0 [P, J]."""
    count: NDArray[np.float64]
    """[P, J]: rollouts of the smaller arm."""
    prompt: NDArray[np.int64]
    """[R]: each run's prompt."""
    main: NDArray[np.bool_]
    """[R]: whether the freeze cells continue the run."""
    run_weight: NDArray[np.float64]
    """[R]"""
    features: NDArray[np.float32]
    """[R, J, D]"""
    whole: NDArray[np.float32]
    """[R, D]"""
    data_hash: str
    """Digest of the recorded runs and cells, as `recorded_hash` computes it."""

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(sorted(self.base))

    def value(self, width: int) -> NDArray[np.float64]:
        """V = qg - q0 [P, J] at a tail width."""
        return self.guided - self.base[width]

    def rows(self, width: int, handoff: int | None) -> int:
        """Forward evaluations of a run that hands off at step `handoff` (None: never), by the schedule."""
        until = self.steps if handoff is None else handoff
        regime = self.regime
        return planned_rows(self.gen_length, self.steps, regime.block_length, until, regime.guided_width, width)

    def of(self, split: str) -> NDArray[np.int64]:
        """Numbers of the prompts of a split."""
        return np.flatnonzero(self.split == split)

    def main_run(self) -> NDArray[np.int64]:
        """[P]: number of each prompt's main run."""
        rows = np.full(len(self.prompts), -1, dtype=np.int64)
        rows[self.prompt[self.main]] = np.flatnonzero(self.main)
        return rows


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Rows to learn from: features [n, D], horizons [n] (NaN: none), fates [n], prompts [n]."""

    features: NDArray[np.float32]
    horizon: NDArray[np.float64]
    fate: NDArray[np.str_]
    group: NDArray[np.int64]
    leaf: int

    def of(self, kept: NDArray[np.bool_]) -> TrainingRows:
        return TrainingRows(self.features[kept], self.horizon[kept], self.fate[kept], self.group[kept], self.leaf)


def rows_of(data: FamilyData, *, whole: bool, splits: Iterable[str] = ("train", "calibrate")) -> TrainingRows:
    """Rows of all recorded guided runs of the prompts in `splits`, at every weight."""
    runs = np.flatnonzero(np.isin(data.split[data.prompt], list(splits)) & (data.fate[data.prompt] != ""))
    prompt = data.prompt[runs]
    if whole:
        return TrainingRows(data.whole[runs], data.a_star[prompt], data.fate[prompt], prompt, MIN_LEAF)
    points = len(data.checkpoints)
    features = data.features[runs].reshape(runs.size * points, -1)
    horizon, fate = np.repeat(data.a_star[prompt], points), np.repeat(data.fate[prompt], points)
    return TrainingRows(features, horizon, fate, np.repeat(prompt, points), MIN_LEAF * points)


def families_of(census: Census) -> dict[str, str]:
    """Task by family. Raises `ValueError` where a family has several tasks (gates need one canvas a family)."""
    task_of: dict[str, str] = {}
    for task in census.tasks:
        family = census.of(task)[0].any_run.family
        if family is None:
            continue
        if task_of.setdefault(family, task) != task:
            raise ValueError(
                f"family '{family}' has the tasks '{task_of[family]}' and '{task}'; "
                "train gates from a census of one each"
            )
    return task_of


def family_data(census: Census, task: str, reader: TextReader, model_hash: str) -> FamilyData:
    """The training data of a task of `census`. Raises `ValueError` where it lacks what gates need."""
    prompts = [prompt for prompt in census.of(task) if census.main_run in prompt.runs]
    if not prompts:
        raise ValueError(f"the census has no main run '{census.main_run}' of task '{task}'")
    first = prompts[0].runs[census.main_run]
    shapes = {(p.any_run.gen_length, p.any_run.steps) for p in prompts}
    if len(shapes) != 1 or first.family is None:
        raise ValueError(f"task '{task}' has several canvases {sorted(shapes)} or no family; gates need one of each")
    cells = [cell for prompt in prompts for cell in prompt.freeze(census.main_run, "guided")]
    if not cells:
        raise ValueError(f"the census has no freeze cells of task '{task}'")
    fractions = {cell.step: max(cell.fractions) for cell in cells if 0 < cell.step < first.steps}
    at = np.array(sorted(fractions), dtype=np.int64)
    checkpoints = tuple(fractions[int(step)] for step in at)
    widths = sorted({cell.tail_width for p in prompts for cell in p.cells.values() if cell.arm.startswith("base")})
    guided, count = _rates(prompts, census.main_run, "guided", at)
    base = {width: _rates(prompts, census.main_run, _arm(width), at) for width in widths}
    labels = [_labels(census, prompt) for prompt in prompts]
    runs = [(index, run) for index, p in enumerate(prompts) for run in p.runs.values() if run.weight > 0.0]
    views = [_views(run, recorded_regime(run, model_hash, census.settings), at) for _, run in runs]
    return FamilyData(
        family=first.family,
        task=task,
        gen_length=first.gen_length,
        steps=first.steps,
        regime=recorded_regime(first, model_hash, census.settings),
        checkpoints=checkpoints,
        at=at,
        prompts=tuple(p.key[1] for p in prompts),
        split=np.array([p.any_run.split for p in prompts]),
        fate=np.array([fate for fate, _ in labels]),
        a_star=np.array([a_star for _, a_star in labels], dtype=np.float64),
        guided=guided,
        base={width: rates for width, (rates, _) in base.items()},
        count=np.minimum.reduce([count, *(n for _, n in base.values())]),
        prompt=np.array([index for index, _ in runs], dtype=np.int64),
        main=np.array([run.run == census.main_run for _, run in runs]),
        run_weight=np.array([run.weight for _, run in runs]),
        features=np.stack([vector.matrix(v[:-1], reader) for v in views]),
        whole=vector.matrix([v[-1] for v in views], reader),
        data_hash=recorded_hash(prompts),
    )


def recorded_hash(prompts: Iterable[PromptRecord]) -> str:
    """16 digits over every recorded run and cell that features and labels are made from.

    Features stay out: logarithms differ in the last bit between processors, and the hash must not. Scores and tokens of
    rollouts stay out too, unlike in `census.store.digest`: training loads the census without them.
    """
    digest = hashlib.sha256(vector.SCHEMA.encode())
    for prompt in prompts:
        digest.update(json.dumps([*prompt.key, prompt.any_run.split]).encode())
        for name, run in sorted(prompt.runs.items()):
            digest.update(json.dumps([name, run.weight, run.success, run.tokens]).encode())
            digest.update(run.trace_bytes)
        for key, cell in sorted(prompt.cells.items(), key=lambda item: repr(item[0])):
            digest.update(json.dumps([repr(key), cell.step, cell.count]).encode())
            digest.update(np.packbits(cell.outcomes).tobytes())
    return digest.hexdigest()[:16]


def recorded_regime(run: RunRecord, model_hash: str, settings: Mapping[str, Any]) -> Regime:
    """The regime of a recorded run of a census with `settings`, at K = 1."""
    return Regime(
        model_hash=model_hash,
        family=run.family,
        guidance_scale=run.weight,
        steps=run.steps,
        gen_length=run.gen_length,
        tail_width=1,
        temperature=settings.get("temperature", 1.0),
        block_length=settings.get("block_length"),
        confidence="probability",
        order=settings.get("order", "confidence"),
        eos="as_is",
        guided_width=settings.get("guided_width", 1),
    )


def _views(run: RunRecord, regime: Regime, at: NDArray[np.int64]) -> list[GateView]:
    """Views at each checkpoint, and last of the whole run."""
    recorded = run.trace.steps
    steps = (*map(int, at), len(recorded))
    return [view_before(step, recorded, regime, run.prompt_tokens, run.constraint) for step in steps]


def _arm(width: int) -> str:
    return "base" if width == 1 else f"base-k{width}"


def _rates(
    prompts: Sequence[PromptRecord], run: str, arm: str, at: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Success rates and rollout counts [P, J]; NaN and 0 where there is no cell."""
    rates, counts = np.full((len(prompts), len(at)), np.nan), np.zeros((len(prompts), len(at)))
    column = {int(step): index for index, step in enumerate(at)}
    for row, prompt in enumerate(prompts):
        for cell in prompt.freeze(run, arm):
            if cell.step in column:
                rates[row, column[cell.step]], counts[row, column[cell.step]] = cell.rate, cell.count
    return rates, counts


def _labels(census: Census, prompt: PromptRecord) -> tuple[str, float]:
    """Handoff fate ("" where cells are missing) and, for the handoff fate, a* as a fraction of the steps."""
    labels = labels_of(census, prompt)
    if labels is None:
        return "", np.nan
    a_star = labels.a_star if labels.handoff_fate == "handoff" else None
    return labels.handoff_fate, np.nan if a_star is None else a_star
