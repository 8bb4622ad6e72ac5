"""The horizon a*: the step of a prompt from which guidance may end without loss of success.

Two forms of it: the freeze estimator on one recorded run (Appendix C), and Definition 1's ensemble form (Eq. 5).

The two are different quantities. The freeze estimator continues the states of *one* guided run; the ensemble form hands
off fresh runs. A hopeless prompt is censored under the first and has a* = 0 under the second.

A server runs it in two rounds: submit `record_job`, then `freeze_states` of its outcome and `committor.cell_jobs` of
each state and arm, `committor.collect` each cell, and `FreezeSweep` puts them together. `measure_horizon` does all of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.rollouts import run_all
from decoding.gates.builtin import FractionGate, NeverGate
from decoding.policy.gate import GateSettings
from decoding.records.trace import Trace
from decoding.request.job import Job
from decoding.sampling.block_schedule import step_at
from gate_models.committor.choices import FREEZE_GRID, Coupling
from gate_models.committor.committor import Committor, State, TextJudge, measure_all
from gate_models.committor.fates import SLACK, handoff_fate, last_peak, persistent, persistent_point


@dataclass(frozen=True, slots=True)
class GridPoint:
    """A step of the freeze grid, and the fractions that fall on it (several where T is small)."""

    step: int
    fractions: tuple[float, ...]


def grid_points(steps: int, fractions: Sequence[float] = FREEZE_GRID) -> tuple[GridPoint, ...]:
    """The grid in steps, collided points merged, in order. Raises `ValueError` for a point that is not before T."""
    merged: dict[int, list[float]] = {}
    for fraction in sorted(set(fractions)):
        step = step_at(fraction, steps)
        if not 0 <= step < steps:
            raise ValueError(f"grid fraction {fraction:g} is step {step} of {steps}; it must be before the last step")
        merged.setdefault(step, []).append(fraction)
    if not merged:
        raise ValueError("the grid is empty; give at least one fraction")
    return tuple(GridPoint(step, tuple(fallen)) for step, fallen in merged.items())


def record_job(job: Job, label: str) -> Job:
    """The guided run to record: `job` under full CFG from its start, with statistics of every step.

    Raises `ValueError` where the policy does not guide.
    """
    policy = job.policy
    if policy.guidance_scale == 0.0:
        raise ValueError("a horizon needs guidance_scale > 0: it says when guidance may end")
    policy = policy.guided_throughout()
    noise = replace(job.noise, purpose="generate", arm=f"{label}|record", rollout=0, round=0)
    return replace(job, policy=policy, gate=NeverGate(), noise=noise, record="stats")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A grid point reached by the recorded run: the state there, and the share of the canvas that is committed."""

    point: GridPoint
    state: State
    committed_fraction: float


def freeze_states(outcome: DecodingResult, label: str, mask_id: int, points: Sequence[GridPoint]) -> list[Frozen]:
    """The states of a recorded run at the grid points, rebuilt from its trace.

    Points that the run did not reach (an end-of-text filled the canvas) or that leave nothing to decode are left out.
    """
    frozen = []
    for point in points:
        if point.step >= len(outcome.trace.steps):
            continue
        state = state_at(outcome.job, outcome.trace, point.step, label, mask_id)
        frozen.append(Frozen(point, state, committed_fraction(state.canvas, mask_id)))
    return frozen


def state_at(job: Job, trace: Trace, step: int, label: str, mask_id: int) -> State:
    """The state before step `step` of a recorded run of `job`; `label` names the run in the noise."""
    return State(job, tuple(trace.prefix(step, mask_id).tolist()), step, f"{label}|s{step}", trace.place(step))


def committed_fraction(canvas: Sequence[int], mask_id: int) -> float:
    """Share of a canvas that is committed."""
    return sum(token != mask_id for token in canvas) / len(canvas)


@dataclass(frozen=True, slots=True)
class FreezePoint:
    """A grid point with its committor."""

    point: GridPoint
    committed_fraction: float
    committor: Committor


@dataclass(frozen=True, slots=True)
class FreezeSweep:
    """The freeze sweep of one recorded run: the switch curve along its own trajectory, a* and the handoff fate."""

    steps: int
    """T."""
    points: tuple[FreezePoint, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a freeze sweep needs at least one grid point before the end of the run")

    def rates(self, base: str = "base") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """q0 and qg [F]; `base` names the base arm, such as "base-k8"."""
        cells = [(p.committor.cells[base], p.committor.guided) for p in self.points]
        q0 = np.array([low.successes / low.count for low, _ in cells])
        return q0, np.array([high.successes / high.count for _, high in cells])

    @property
    def horizon(self) -> FreezePoint | None:
        """The earliest persistent safe point; None where the prompt is censored (a* = T)."""
        index = int(persistent_point(*self.rates()))
        return self.points[index] if index < len(self.points) else None

    @property
    def censored(self) -> bool:
        return self.horizon is None

    @property
    def a_star(self) -> float:
        """a* as a fraction of T; 1.0 where censored."""
        horizon = self.horizon
        return 1.0 if horizon is None else horizon.point.step / self.steps

    @property
    def peak(self) -> FreezePoint:
        """Where q0 is highest; of equal points the last."""
        return self.points[last_peak(self.rates()[0])]

    @property
    def handoff_fate(self) -> str:
        return handoff_fate(*self.rates())

    @property
    def rows(self) -> int:
        """Forward evaluations of all cells (the recorded run aside)."""
        return sum(point.committor.rows for point in self.points)


def measure_horizon(
    engine: Engine,
    job: Job,
    judge: TextJudge,
    count: int,
    *,
    label: str,
    fractions: Sequence[float] = FREEZE_GRID,
    coupling: Coupling = "independent",
    timeout: float | None = None,
) -> tuple[DecodingResult, FreezeSweep]:
    """Record a guided run of `job`, continue it from every grid point, base and guided, `count` times; waits for it."""
    (handle,) = run_all(engine, [record_job(job, label)], timeout)
    outcome = handle.result(timeout)
    states = freeze_states(outcome, label, engine.model.spec.mask_id, grid_points(job.steps, fractions))
    measured = measure_all(
        engine, [frozen.state for frozen in states], judge, count, coupling=coupling, timeout=timeout
    )
    points = tuple(
        FreezePoint(frozen.point, frozen.committed_fraction, committor)
        for frozen, committor in zip(states, measured, strict=True)
    )
    return outcome, FreezeSweep(job.steps, points)


# -- Definition 1: fresh prefixes ------------------------------------------------------------------------------------


def switch_jobs(job: Job, step: int, count: int, *, label: str, first: int = 0, tail_width: int = 1) -> list[Job]:
    """`count` fresh runs of `job` that hand off before step `step` (T: never): the rollouts of S(step), Section 3.3."""
    never = step >= job.steps
    gate = GateSettings("never") if never else GateSettings("fraction", fraction=step / job.steps)
    if never:
        policy = job.policy.guided_throughout()
    else:
        policy = replace(job.policy, preset="handoff", gate=gate, tail_threshold=None).with_tail_width(tail_width)
    built = NeverGate() if gate.fraction is None else FractionGate(gate.fraction)
    noise = replace(job.noise, purpose="rollout", arm=f"{label}|switch{step}-k{tail_width}", round=0)
    return [
        replace(
            job,
            policy=policy,
            gate=built,
            noise=replace(noise, rollout=index),
            purpose="rollout",
            priority="background",
            record="commits",
        )
        for index in range(first, first + count)
    ]


@dataclass(frozen=True, slots=True)
class EnsembleHorizon:
    """a*_eps of Definition 1 among the switch points that were evaluated."""

    step: int
    censored: bool
    """Whether no preterminal switch point is safe (then `step` is T)."""


def ensemble_horizon(
    switch_steps: Sequence[int], curve: NDArray[np.float64], terminal: float, steps: int, tolerance: float
) -> EnsembleHorizon:
    """Earliest evaluated switch point from which S(s) >= S(T) - eps at every later one (Eq. 5).

    `curve` [F] is S at `switch_steps` (ascending, before T), `terminal` is S(T).
    """
    safe = np.asarray(curve) >= terminal - tolerance - SLACK
    index = int(persistent(safe))
    censored = index == len(safe)
    return EnsembleHorizon(steps if censored else switch_steps[index], censored)
