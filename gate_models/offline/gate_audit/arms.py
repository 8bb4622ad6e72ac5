"""What each gate source would have done on the runs of a sweep: the arm that it would have picked, run by run.

Gates are the very objects that the server asks, on the views that the engine would have shown them; a source that
decides from elsewhere (the measured horizon, the paper's whole-run features of a separate run) brings its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from decoding.gates.protocol import Gate, GateView, Regime
from gate_models.features.prefix import view_before
from gate_models.features.text_metrics import has_adjacent_repeat
from gate_models.offline.gate_audit.sweep import SweptRun, Text

ARRAYS: Final = ("prompt", "step", "success", "rows", "repeats")
"""Fields of `Arms` that have one value a run."""


@dataclass(frozen=True, slots=True)
class Arms:
    """A source on all runs of a sweep at one tail width; arrays are [runs]."""

    source: str
    width: int
    prompt: NDArray[np.int64]
    """Number of each run's prompt."""
    step: NDArray[np.int64]
    """Handoff step; T where guidance never ended."""
    success: NDArray[np.float64]
    rows: NDArray[np.float64]
    repeats: NDArray[np.float64]
    texts: tuple[str, ...]

    def of(self, kept: NDArray[np.bool_]) -> Arms:
        """The runs that `kept` marks."""
        arrays = {name: getattr(self, name)[kept] for name in ARRAYS}
        return replace(self, texts=tuple(t for t, keep in zip(self.texts, kept, strict=True) if keep), **arrays)

    def by_prompt(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means [P] of per-run `values` over the samples of each prompt, in order of the prompts' numbers."""
        numbers, at = np.unique(self.prompt, return_inverse=True)
        means: NDArray[np.float64] = np.bincount(at, values) / np.bincount(at, minlength=numbers.size)
        return means


def prompt_numbers(runs: Sequence[SweptRun]) -> NDArray[np.int64]:
    """[runs]: number of each run's prompt, in order of appearance."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(run.prompt.id, len(known)) for run in runs], dtype=np.int64)


def decided_steps(runs: Sequence[SweptRun], gate: Gate, regime: Regime) -> NDArray[np.int64]:
    """[runs]: the step before which `gate` ends guidance; T where it never does. One batched call a checkpoint."""
    decided = np.array([run.prompt.steps for run in runs], dtype=np.int64)
    checkpoints = [gate.checkpoints(run.prompt.steps) for run in runs]
    every = sorted({step for steps in checkpoints if steps is not None for step in steps})
    if any(steps is None for steps in checkpoints):
        every = list(range(1, max(run.prompt.steps for run in runs)))
    waiting = list(range(len(runs)))
    for step in every:
        due = [
            i for i in waiting if step < runs[i].prompt.steps and ((steps := checkpoints[i]) is None or step in steps)
        ]
        if not due:
            continue
        decisions = gate.decide([_view(runs[i], regime, step) for i in due])
        for index, decision in zip(due, decisions, strict=True):
            if decision.handoff:
                decided[index] = step
                waiting.remove(index)
    return decided


def _view(run: SweptRun, regime: Regime, step: int) -> GateView:
    view_regime = replace(regime, steps=run.prompt.steps, gen_length=run.prompt.gen_length)
    return view_before(step, run.trace.steps, view_regime, run.prompt_tokens, run.prompt.constraint)


def arms_at(
    runs: Sequence[SweptRun], source: str, width: int, steps: NDArray[np.int64], extra_rows: float = 0.0
) -> Arms:
    """The arms that handoffs at `steps` [runs] pick; a step between the sweep's is moved to the next later one.

    `extra_rows`: what the source itself costs a run (a separate recorded run: 2T).
    """
    picked = [_branch(run, width, int(step)) for run, step in zip(runs, steps, strict=True)]
    return _arms(runs, source, width, [step for step, _ in picked], [text for _, text in picked], extra_rows)


def wide_arms(runs: Sequence[SweptRun], width: int) -> Arms | None:
    """Full CFG of `width` positions a step from the first step on; None where the sweep has none."""
    if any(width not in run.wide for run in runs):
        return None
    return _arms(runs, "full_cfg", width, [run.prompt.steps for run in runs], [run.wide[width] for run in runs], 0.0)


def never_arms(runs: Sequence[SweptRun], width: int) -> Arms:
    """Serial full CFG."""
    return _arms(runs, "full_cfg", width, [run.prompt.steps for run in runs], [run.guided for run in runs], 0.0)


def _branch(run: SweptRun, width: int, step: int) -> tuple[int, Text]:
    later = [branch for kind, branch in run.branches if kind == width and branch >= step]
    if step >= run.prompt.steps or not later:
        return run.prompt.steps, run.guided
    return min(later), run.branches[width, min(later)]


def _arms(
    runs: Sequence[SweptRun], source: str, width: int, steps: Sequence[int], texts: Sequence[Text], extra: float
) -> Arms:
    return Arms(
        source=source,
        width=width,
        prompt=prompt_numbers(runs),
        step=np.array(steps, dtype=np.int64),
        success=np.array([text.success for text in texts], dtype=np.float64),
        rows=np.array([text.rows + extra for text in texts], dtype=np.float64),
        repeats=np.array([has_adjacent_repeat(text.text) for text in texts], dtype=np.float64),
        texts=tuple(text.text for text in texts),
    )


def steps_by_prompt(runs: Sequence[SweptRun], steps: Mapping[str, int | None]) -> NDArray[np.int64]:
    """[runs]: one step a prompt (None: never), such as the measured horizon."""
    handoffs = [steps.get(run.prompt.id) for run in runs]
    return np.array(
        [run.prompt.steps if step is None else step for run, step in zip(runs, handoffs, strict=True)], dtype=np.int64
    )
