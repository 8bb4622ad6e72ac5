"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Any, Literal

from astargate_client.transport.reply import Reply


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
    handoff_fate: str
    rollouts: int
    job: str
    measured: float
    peak: int | None = None
    """Where repair.anchor 'peak' begins; null where the horizon was measured before this was kept."""


class HorizonList(Reply):
    data: list[HorizonInfo]
    has_more: bool
    object: Literal["list"] = "list"


class Interval(Reply):
    estimate: float
    low: float
    high: float
    """`low` and `high`: 95 %."""

    method: str
    """How they were found. `deterministic`: at temperature 0 all continuations are one; both are the estimate then."""


class MeasuredHorizon(Reply):
    """a*: the earliest point of the grid that is safe (q0 >= 0.9 and qg - q0 <= 0.1) together with every later one."""

    censored: bool
    """No point before the end is safe: guidance should stay on."""

    step: int | None
    fraction: float | None
    committed_fraction: float | None
    peak: int | None = None
    """Step of the grid at which q0 is highest, the last of equal ones: where repair.anchor 'peak' begins."""


class Progress(Reply):
    rollouts: int
    rollouts_total: int
    forward_evaluations: int
    estimated_forward_evaluations: int
    """An upper estimate."""


class Proportion(Reply):
    """Share of continuations that meet the constraint, with its Wilson interval."""

    estimate: float
    low: float
    high: float
    """`low` and `high`: 95 %."""

    method: str
    """How they were found. `deterministic`: at temperature 0 all continuations are one; both are the estimate then."""

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


class CommittorResult(Reply):
    points: list[CommittorPoint]
    """One for a state; with horizon: true the switch curve along one recorded guided run."""

    forward_evaluations: int
    """Rows of the recorded run and of all continuations."""

    cross_fitted: CrossFitted | None = None
    handoff_fate: str | None = None
    horizon: MeasuredHorizon | None = None


class CommittorJob(Reply):
    """A measurement. Links: GET /committor/{id} follows it, DELETE cancels it."""

    id: str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
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
    object: Literal["committor"] = "committor"


class CommittorJobList(Reply):
    data: list[CommittorJob]
    """Newest first, without their results."""

    has_more: bool
    """Whether there are more; ask with after= the last id."""

    object: Literal["list"] = "list"
