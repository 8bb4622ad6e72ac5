"""What a committor job does: the run whose states are continued, the steps that are measured, the most it may cost."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from decoding.gates.protocol import Regime
from decoding.models.protocol import DenoisingModel
from decoding.request.job import Job, regime_of
from decoding.request.row_estimates import most_rows
from decoding.request.validation import check_job
from decoding.sampling.block_schedule import step_at
from gate_models.committor.committor import GUIDED, Arm, State, cell_jobs
from gate_models.committor.horizon import GridPoint, grid_points
from service.config.settings import Settings
from service.generation.job import check_request, job_of
from service.generation.request import CanvasRequest
from service.generation.template import check_settled
from service.http.errors import invalid
from service.schemas.committor import CommittorRequest, StateRequest
from service.schemas.policy import GateRequest, PolicyRequest

MASK: Final = "[MASK]"
LABEL: Final = "committor"
PRESETS: Final = ("handoff", "parallel_tail")
UNUSED: Final = ("on_fallback", "tail_reuse", "tail_refresh", "repair", "budget_rows")
"""Policy fields that a measurement does not use; key-value reuse is approximate, measurements are exact."""


@dataclass(frozen=True)
class CommittorPlan:
    """What a committor job does. `job` guides to the end; `start` is the given state, None where it is recorded."""

    job: Job
    count: int
    horizon: bool
    points: tuple[GridPoint, ...]
    start: tuple[int, ...] | None

    @property
    def base(self) -> Arm:
        """The tail that will be served."""
        return Arm(False, self.job.policy.tail_width)

    @property
    def arms(self) -> tuple[Arm, Arm]:
        return self.base, GUIDED

    @property
    def recorded(self) -> bool:
        """Whether a guided run comes first, from whose states the rollouts go on."""
        return self.start is None and any(point.step > 0 for point in self.points)

    @property
    def rollouts(self) -> int:
        return len(self.points) * len(self.arms) * self.count

    @cached_property
    def rows(self) -> int:
        """Upper estimate of the forward evaluations: about 15.4 N T + 2 T for a horizon."""
        empty = self.start or (0,) * self.job.gen_length
        states = [State(self.job, empty, point.step, LABEL) for point in self.points]
        cells = sum(most_rows(cell_jobs(state, arm, 1)[0]) for state in states for arm in self.arms)
        return self.count * cells + (self.job.full_cfg_equivalent if self.recorded else 0)


def with_seed(request: CommittorRequest) -> CommittorRequest:
    """The request with a seed, so that a job that is resumed goes on with the same noise."""
    if request.seed is not None:
        return request
    return request.model_copy(update={"seed": secrets.randbelow(2**32)})


def plan_of(request: CommittorRequest, model: DenoisingModel, settings: Settings) -> CommittorPlan:
    """What the request measures. Raises what `job_of` and `check_request` raise."""
    _check(request)
    given = _state_tokens(request.state, model)
    asked = _canvas_request(request, given)
    job = job_of(asked, model, settings)
    check_request(job, asked, model.spec, settings)
    job = replace(job, deadline=None)
    start, points = _start(request, given, job, model)
    plan = CommittorPlan(job, request.rollouts, request.horizon, points, start)
    for arm in plan.arms:
        state = State(job, start or job.empty(model.spec.mask_id), points[0].step, LABEL)
        check_job(cell_jobs(state, arm, 1)[0], model.spec, invariant=settings.batch_invariant)
    return plan


def measured_regime(plan: CommittorPlan, model_hash: str) -> Regime:
    """The regime in which the plan's horizon holds."""
    return regime_of(plan.job, model_hash)


def _check(request: CommittorRequest) -> None:
    if request.horizon and request.state is not None:
        raise invalid("state", "is not used with horizon: true, which starts from the empty canvas; leave it out")
    if not request.horizon and request.state is None:
        raise invalid("state", "is missing; give one of text, tokens or fraction, or set horizon to true")
    if request.horizon and request.rollouts < 2:
        raise invalid("rollouts", "must be at least 2 with horizon: true: cross-fitting splits them")
    if request.state is not None and sum(value is not None for value in request.state.model_dump().values()) != 1:
        raise invalid("state", "must have exactly one of text, tokens and fraction")
    policy = request.policy
    if policy is None:
        return
    if policy.preset is not None and policy.preset not in PRESETS:
        raise invalid("policy.preset", f"must be one of {', '.join(PRESETS)}: both arms of a committor are measured")
    if policy.gate is not None:
        if policy.gate.source not in {None, "recorded"}:
            raise invalid("policy.gate.source", "must be 'recorded' or left out: where to hand off is what is measured")
        for name, value in policy.gate.model_dump(exclude={"source"}).items():
            if value is not None:
                raise invalid(f"policy.gate.{name}", "is not used by /committor; leave it out")
    for name in UNUSED:
        if getattr(policy, name, None) is not None:
            raise invalid(f"policy.{name}", "is not used by /committor; leave it out")


def _canvas_request(request: CommittorRequest, given: Sequence[int] | None) -> CanvasRequest:
    """The canvas whose run is measured. Its gate is the one that the measurement will serve."""
    policy = (request.policy or PolicyRequest()).model_copy(update={"gate": GateRequest(source="recorded")})
    gen_length = len(given) if given is not None and request.gen_length is None else request.gen_length
    asked = CanvasRequest.of(request, policy=policy, gen_length=gen_length)
    if request.template is not None and given is not None:
        raise invalid("template", "is not used with a state that is given as text or tokens; leave it out")
    check_settled(asked, "a committor is measured for one length")
    return asked


def _state_tokens(state: StateRequest | None, model: DenoisingModel) -> list[int] | None:
    """The ids of a state given as text or as ids."""
    if state is None or (state.text is None and state.tokens is None):
        return None
    mask = model.spec.mask_id
    if state.tokens is not None:
        ids = list(state.tokens)
        for index, token in enumerate(ids):
            if not 0 <= token < model.spec.vocab_size or (token in model.spec.suppressed_ids and token != mask):
                raise invalid(f"state.tokens[{index}]", f"is {token}, which no text of this model can hold")
        name = "state.tokens"
    else:
        ids = _encoded(state.text or "", model)
        name = "state.text"
    if not ids:
        raise invalid(name, "is empty")
    return ids


def _encoded(text: str, model: DenoisingModel) -> list[int]:
    """Ids of a text with masks. Spaces before a mask belong to the token that will stand there: none is kept."""
    *before, last = re.split(re.escape(MASK), text, flags=re.IGNORECASE)
    ids: list[int] = []
    for part in before:
        ids += [*model.codec.encode(part.rstrip(" ")), model.spec.mask_id]
    return ids + model.codec.encode(last if last.strip(" ") or not before else "")


def _start(
    request: CommittorRequest, given: list[int] | None, job: Job, model: DenoisingModel
) -> tuple[tuple[int, ...] | None, tuple[GridPoint, ...]]:
    """The given canvas, if one is, and the steps to measure at."""
    if request.horizon:
        if job.steps < 2:
            raise invalid("steps", "must be at least 2 with horizon: true: guidance can only end between two steps")
        return None, grid_points(job.steps)
    if given is None:
        fraction = (request.state and request.state.fraction) or 0.0
        step = step_at(fraction, job.steps)
        if step >= job.steps:
            raise invalid("state.fraction", f"is step {step} of {job.steps}: nothing is left to decode")
        longest = job.planned_rows(job.steps) // 2
        if step >= longest:
            taken = f"is step {step}, but with policy.guided_width {job.policy.guided_width} the guided run ends after"
            raise invalid("state.fraction", f"{taken} {longest} steps: nothing is left to decode")
        return None, (GridPoint(step, (fraction,)),)
    name = "state.text" if request.state and request.state.text is not None else "state.tokens"
    mask = model.spec.mask_id
    if len(given) > job.gen_length:
        raise invalid(name, f"has {len(given)} tokens; gen_length is {job.gen_length}")
    if name == "state.tokens" and len(given) != job.gen_length:
        raise invalid(name, f"has {len(given)} tokens; it must be the whole canvas, gen_length is {job.gen_length}")
    canvas = (*given, *(mask,) * (job.gen_length - len(given)))
    masked = sum(token == mask for token in canvas)
    if masked == 0:
        raise invalid(name, f"has no {MASK}: nothing is left to decode")
    step = min(step_at(1.0 - masked / job.gen_length, job.steps), job.steps - 1)
    return canvas, (GridPoint(step, (step / job.steps,)),)
