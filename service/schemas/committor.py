"""Wire types of /committor: what is measured, the job that measures it, measured horizons."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.schemas.base import MAX_CANVAS, MAX_PROMPT_CHARACTERS, Reply, Request
from service.schemas.constraint import ConstraintObject
from service.schemas.generate import CanvasBody

MAX_ROLLOUTS = 4096
JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class StateRequest(Request):
    """A partly written text: exactly one of the three."""

    text: str | None = Field(None, max_length=MAX_PROMPT_CHARACTERS)
    """Text with [MASK] (any case) where a token is undecided. A longer canvas (gen_length) is undecided behind it."""
    tokens: list[int] | None = Field(None, max_length=MAX_CANVAS, fail_fast=True)
    """Token ids of the whole canvas, the model's mask id where undecided."""
    fraction: float | None = Field(None, ge=0, lt=1)
    """The state of a guided run from the empty canvas at this fraction of its steps; 0 is the empty canvas."""


class CommittorRequest(CanvasBody):
    """How likely the constraint is met in the end, from a state, with and without guidance; or a prompt's horizon.

    The other fields are those of /generate, so that what is measured is what will be served.
    """

    constraint: ConstraintObject
    state: StateRequest | None = None
    """The state to continue from; left out with horizon: true, which starts from the empty canvas."""
    horizon: bool = False
    """Measure the whole switch curve, a* and the fate; then gate.source 'recorded' and repair.anchor 'peak' find it."""
    rollouts: int = Field(24, ge=1, le=MAX_ROLLOUTS)
    """Continuations an arm from each state; at least 2 with horizon: true (cross-fitting splits them)."""


class Interval(Reply):
    estimate: float
    low: float
    high: float
    """`low` and `high`: 95 %."""
    method: str
    """How they were found. `deterministic`: at temperature 0 all continuations are one; both are the estimate then."""


class Proportion(Interval):
    """Share of continuations that meet the constraint, with its Wilson interval."""

    successes: int
    rollouts: int
    mean_score: float
    """Mean graded score, in [0, 1]."""


class CommittorPoint(Reply):
    """One state, continued `rollouts` times in each arm."""

    step: int
    fraction: float
    """step / T."""
    committed_fraction: float
    masked: int
    q0: Proportion
    """Base continuation, tail_width positions a step."""
    qg: Proportion
    """Guided continuation."""
    value: Interval
    """V = qg - q0, what guidance is still worth here; Newcombe's interval."""
    graded_value: Interval
    """The same difference of the graded scores."""


class MeasuredHorizon(Reply):
    """a*: the earliest point of the grid that is safe (q0 >= 0.9 and qg - q0 <= 0.1) together with every later one."""

    censored: bool
    """No point before the end is safe: guidance should stay on."""
    step: int | None
    fraction: float | None
    committed_fraction: float | None
    peak: int | None = None
    """Step of the grid at which q0 is highest, the last of equal ones: where repair.anchor 'peak' begins."""


class CrossFitted(Reply):
    """Values at a* where a* is chosen on one half of the rollouts and read on the other, over `splits` half-splits."""

    splits: int
    full_cfg: float
    handoff: float
    difference: float
    """handoff - full_cfg; a split without a safe point counts 0."""
    optimism: float
    """What choosing and reading on the same rollouts would add."""
    censored_share: float
    median_fraction: float


class CommittorResult(Reply):
    points: list[CommittorPoint]
    """One for a state; with horizon: true the switch curve along one recorded guided run."""
    horizon: MeasuredHorizon | None = None
    handoff_fate: str | None = None
    cross_fitted: CrossFitted | None = None
    forward_evaluations: int
    """Rows of the recorded run and of all continuations."""


class Progress(Reply):
    rollouts: int
    rollouts_total: int
    forward_evaluations: int
    estimated_forward_evaluations: int
    """An upper estimate."""


class CommittorJob(Reply):
    """A measurement. Links: GET /committor/{id} follows it, DELETE cancels it."""

    id: str
    object: Literal["committor"] = "committor"
    status: JobStatus
    created: float
    """Unix times, seconds."""
    started: float | None
    finished: float | None
    model: str
    model_hash: str
    request: dict[str, Any]
    """As sent, with the seed that is used."""
    progress: Progress
    result: CommittorResult | None
    error: str | None


class CommittorJobList(Reply):
    object: Literal["list"] = "list"
    data: list[CommittorJob]
    """Newest first, without their results."""
    has_more: bool
    """Whether there are more; ask with after= the last id."""


class HorizonInfo(Reply):
    """A measured horizon; it serves gate.source 'recorded' for exactly this prompt, constraint, model and regime."""

    id: str
    prompt: str
    constraint: dict[str, Any]
    family: str | None
    model_hash: str
    regime: dict[str, Any]
    censored: bool
    step: int | None
    fraction: float | None
    peak: int | None = None
    """Where repair.anchor 'peak' begins; null where the horizon was measured before this was kept."""
    handoff_fate: str
    rollouts: int
    job: str
    measured: float


class HorizonList(Reply):
    object: Literal["list"] = "list"
    data: list[HorizonInfo]
    has_more: bool
