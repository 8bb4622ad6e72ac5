"""Committors: the chance that a half-decoded text will meet its constraint, with guidance and without.

Measured by rollouts (paper Section 3.2): from a state, N base and N guided continuations through the engine.

The work is split so that a server can report progress and cancel: `cell_jobs` makes jobs, the owner of the engine
submits them, `collect` turns their results into a cell, `Committor` puts cells together. `measure_all` does all of it.

Cells are independent by default: each arm of each state has noise of its own. `coupling` "common" gives all arms of a
state the same uniforms, rollout by rollout; "antithetic" does so too and mirrors every second rollout (u and 1 - u).
Coupled cells need the paired analysis that `Committor.value` then uses, and half-splits that keep pairs together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from decoding.constraints import parse
from decoding.engine.engine import Engine
from decoding.engine.handle import DecodingResult
from decoding.engine.rollouts import continuations, run_all
from decoding.models.protocol import DenoisingModel
from decoding.request.job import Anchor, Job
from decoding.request.template import TemplateCanvas
from decoding.sampling.block_schedule import Place
from gate_models.committor.choices import Coupling
from gate_models.statistics.intervals import Estimate, mean_interval, newcombe, paired_newcombe, proportion, welch


class Graded(Protocol):
    """What a judge says of a text: `decoding.constraints` verdicts are of this shape."""

    @property
    def satisfied(self) -> bool: ...

    @property
    def score(self) -> float: ...


TextJudge = Callable[[tuple[int, ...]], Graded]
"""Token ids up to the first end-of-text (`Outcome.content`) -> verdict."""


def judge_of(model: DenoisingModel, constraint: Mapping[str, Any], template: TemplateCanvas | None = None) -> TextJudge:
    """The success predicate of a constraint, on the token ids of a text or of a filled template.

    Raises `ConstraintError` where it is malformed.
    """
    predicate = parse(dict(constraint))
    if template is not None:
        return lambda content: predicate.evaluate(template.text(model.codec, content))
    return lambda content: predicate.evaluate(model.codec.decode(list(content)))


@dataclass(frozen=True, slots=True)
class Arm:
    """How a state is continued: under guidance to the end, or under base with a tail of `tail_width` positions."""

    guided: bool
    tail_width: int = 1

    @property
    def name(self) -> str:
        if self.guided:
            return "guided"
        return "base" if self.tail_width == 1 else f"base-k{self.tail_width}"


GUIDED: Final = Arm(True)
BASE: Final = Arm(False)


@dataclass(frozen=True, slots=True)
class State:
    """A partly decoded canvas [L] of `job`'s run before step `step`. `job` guides (w > 0) and never hands off.

    `label` names the state in the noise: two states of one label have equal noise. `place` is where the recorded run's
    schedule stood (`Trace.place`).
    """

    job: Job
    canvas: tuple[int, ...]
    step: int
    label: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One continuation: verdict, the whole canvas, forward evaluations."""

    success: bool
    score: float
    tokens: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The rollouts of one arm from one state, in order of their rollout number."""

    arm: str
    rollouts: tuple[Rollout, ...]

    @property
    def outcomes(self) -> NDArray[np.bool_]:
        """[N]: success of each rollout."""
        return np.array([rollout.success for rollout in self.rollouts], dtype=bool)

    @property
    def scores(self) -> NDArray[np.float64]:
        """[N]: graded success in [0, 1]."""
        return np.array([rollout.score for rollout in self.rollouts], dtype=np.float64)

    @property
    def count(self) -> int:
        return len(self.rollouts)

    @property
    def successes(self) -> int:
        return sum(rollout.success for rollout in self.rollouts)

    @property
    def rows(self) -> int:
        """Forward evaluations of all rollouts."""
        return sum(rollout.rows for rollout in self.rollouts)

    def success_rate(self, confidence: float = 0.95) -> Estimate:
        """q of this arm, with its Wilson interval."""
        return proportion(self.successes, self.count, confidence)

    @property
    def mean_score(self) -> float:
        return float(self.scores.mean())


def cell_jobs(
    state: State,
    arm: Arm,
    count: int,
    *,
    first: int = 0,
    coupling: Coupling = "independent",
    fill_after: int | None = None,
) -> list[Job]:
    """Jobs of rollouts `first` .. `first + count - 1` of a cell, at background priority.

    With `fill_after` k they are truncated: k sampled steps, then one step that fills what is still masked with its
    argmax; those with at most k steps left are whole. Raises `ValueError` where `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"a cell needs at least one rollout, got {count}")
    name = f"{state.label}|{arm.name}" if coupling == "independent" else f"{state.label}|coupled"
    width = None if arm.guided else arm.tail_width
    jobs = continuations(
        replace(state.job, record="commits"),
        Anchor(tuple(state.canvas), state.step, state.place),
        guided=arm.guided,
        count=first + count,
        arm=name,
        tail_width=width,
    )[first:]
    if fill_after is not None and state.step + fill_after < state.job.steps:
        jobs = [replace(job, fill_step=state.step + fill_after) for job in jobs]
    if coupling == "antithetic":
        jobs = [
            replace(job, noise=replace(job.noise, rollout=job.noise.rollout // 2, mirrored=job.noise.rollout % 2 == 1))
            for job in jobs
        ]
    return jobs


def collect(arm: Arm | str, outcomes: Sequence[DecodingResult], judge: TextJudge) -> Cell:
    """The cell of finished rollouts."""
    rollouts = []
    for outcome in outcomes:
        verdict = judge(outcome.content)
        rollouts.append(Rollout(verdict.satisfied, verdict.score, outcome.tokens, outcome.ledger.total))
    return Cell(arm if isinstance(arm, str) else arm.name, tuple(rollouts))


@dataclass(frozen=True, slots=True)
class Committor:
    """The cells of one state by arm name; "base" and "guided" are there."""

    cells: Mapping[str, Cell]
    coupling: Coupling = "independent"

    @property
    def base(self) -> Cell:
        return self.cells["base"]

    @property
    def guided(self) -> Cell:
        return self.cells["guided"]

    @property
    def rows(self) -> int:
        return sum(cell.rows for cell in self.cells.values())

    def value(self, base: str = "base", confidence: float = 0.95) -> Estimate:
        """V = qg - q0 (Eq. 4): Newcombe for independent cells, the paired form for common numbers, and Student's t over
        mirrored pairs for antithetic ones.
        """
        guided, other = self.guided, self.cells[base]
        if self.coupling == "independent":
            return newcombe((guided.successes, guided.count), (other.successes, other.count), confidence)
        if self.coupling == "common":
            return paired_newcombe(guided.outcomes, other.outcomes, confidence)
        return mean_interval(_pair_means(guided.outcomes.astype(float) - other.outcomes), confidence)

    def graded_value(self, base: str = "base", confidence: float = 0.95) -> Estimate:
        """The same difference of the graded scores in [0, 1]."""
        guided, other = self.guided.scores, self.cells[base].scores
        if self.coupling == "independent":
            return welch(guided, other, confidence)
        difference = guided - other
        return mean_interval(difference if self.coupling == "common" else _pair_means(difference), confidence)


def _pair_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of the mirrored pairs (0, 1), (2, 3), ...; a last one without partner is dropped."""
    return values[: values.size // 2 * 2].reshape(-1, 2).mean(1) if values.size > 1 else values


def measure_all(
    engine: Engine,
    states: Sequence[State],
    judge: TextJudge,
    count: int,
    *,
    coupling: Coupling = "independent",
    timeout: float | None = None,
) -> list[Committor]:
    """The committors of several states, `count` rollouts a cell, decoded beside each other on a started engine; waits
    for them.
    """
    arms = (BASE, GUIDED)
    planned = [[cell_jobs(state, arm, count, coupling=coupling) for arm in arms] for state in states]
    handles = run_all(engine, [job for cells in planned for jobs in cells for job in jobs], timeout)
    outcomes = iter([handle.result(timeout) for handle in handles])
    return [
        Committor(
            {
                arm.name: collect(arm, [next(outcomes) for _ in jobs], judge)
                for arm, jobs in zip(arms, cells, strict=True)
            },
            coupling,
        )
        for cells in planned
    ]
