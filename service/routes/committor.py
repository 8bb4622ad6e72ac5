"""/committor: what guidance is still worth in a state, and measured horizons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from service.backend.backend import Backend
from service.committor.plan import CommittorPlan, plan_of, with_seed
from service.committor.run import NOTHING_LEFT
from service.committor.tables import HorizonRecord, JobRecord, UnknownEntryError
from service.committor.worker import JobWorker
from service.config.settings import Settings
from service.http.auth import caller_of
from service.http.body import BoundedRoute
from service.http.disconnect import ClientGoneError, unless_gone
from service.http.errors import ApiError, invalid
from service.routes import examples
from service.routes.common import ServiceDep, understood
from service.schemas import committor as wire
from service.schemas.committor import JobStatus

T = TypeVar("T")

router = APIRouter(tags=["committor"], route_class=BoundedRoute)
MAX_PAGE = 100
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Entries of a page.")]
After = Annotated[str | None, Query(max_length=64, description="Id of the last entry of the page before.")]
_EXAMPLES: dict[str, Any] = {
    "a state": {
        "summary": "How likely a half-written text ends well, with and without guidance",
        "value": {
            "constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]},
            "state": {"text": "a dog [MASK] [MASK] [MASK] on the [MASK] [MASK]"},
            "rollouts": 8,
            "seed": 7,
        },
    },
    "a fraction": {
        "summary": "The state of a guided run after 30 % of its steps",
        "value": {
            "constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]},
            "state": {"fraction": 0.3},
            "gen_length": 12,
            "rollouts": 8,
            "seed": 7,
        },
    },
    "a horizon": {
        "summary": "The switch curve and a*, recorded for gate.source 'recorded'",
        "value": {
            "constraint": {"type": "keywords", "keywords": ["dog", "ball", "beach"]},
            "horizon": True,
            "gen_length": 12,
            "rollouts": 4,
            "seed": 7,
        },
    },
}
_POST: dict[int | str, dict[str, Any]] = {
    200: {"description": "A small measurement, done"},
    202: {"model": wire.CommittorJob, "description": "A job; Location says where to follow it"},
    **examples.errors(400, 413, 422, 429, 500, 503),
}
_GET = examples.errors(404, 422, 503)


@router.post(
    "/committor", response_model=wire.CommittorJob, responses=_POST, summary="Measure a committor or a horizon"
)
@router.post("/v1/committor", response_model=wire.CommittorJob, include_in_schema=False)
async def measure(
    request: Request,
    service: ServiceDep,
    body: Annotated[wire.CommittorRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Continue a state `rollouts` times under base and under guidance: q0, qg and V = qg - q0, with intervals.

    With `horizon: true` the same from every point of the freeze grid along one recorded guided run: the switch curve,
    a*, the fate, cross-fitted values. Cost: about 15.4 N T + 2 T forward evaluations. Small requests answer at once.
    """
    backend, jobs, key_id = service.admit(), service.jobs, caller_of(request)
    body = with_seed(body)
    work = partial(_affordable_plan, body, backend, service.settings)
    plan = await understood(request, service, body.policy, None, work)
    try:
        job, running = await jobs.query(partial(jobs.submit, key_id, body, plan))
    except ApiError as error:
        service.metrics.rejections.labels(error.code).inc()
        raise
    if running is not None:
        try:
            job = await unless_gone(request.receive, _settled(jobs, key_id, job, running))
        except ClientGoneError:
            await jobs.query(partial(jobs.cancel, key_id, job.id))
            raise
    if job.error == NOTHING_LEFT:
        raise invalid("state.fraction", f"cannot be measured: {job.error}")
    if job.status == "failed":
        raise ApiError(500, f"{job.id} failed: {job.error}", code="job_failed")
    headers = {"Location": f"{request.url.path}/{job.id}"}
    return Response(
        job_reply(job).model_dump_json(), 202 if job.unfinished else 200, headers, media_type="application/json"
    )


async def _settled(jobs: JobWorker, key_id: str, job: JobRecord, running: Future[None]) -> JobRecord:
    """The job as it is once it has ended, or taken as long as a caller is let wait."""
    await asyncio.wait({asyncio.wrap_future(running)}, timeout=jobs.settings.committor_wait_seconds)
    return await jobs.query(partial(jobs.store.get, key_id, job.id)) or job


def _affordable_plan(body: wire.CommittorRequest, backend: Backend, settings: Settings) -> CommittorPlan:
    """What the request measures; worker thread. Raises what `plan_of` raises, and a 422 where it costs too much."""
    plan = plan_of(body, backend.model, settings)
    _check_cost(plan, settings)
    return plan


def _check_cost(plan: CommittorPlan, settings: Settings) -> None:
    limit, rows = settings.committor_max_rows, plan.rows
    if rows > limit:
        fitting = plan.count * limit // rows
        hint = f"rollouts = {fitting} would fit" if fitting else "take fewer steps"
        raise invalid(
            "rollouts",
            f"is too large: the request asks for an estimated {rows} forward evaluations, this server takes at most "
            f"{limit} ({hint})",
            "too_large",
        )


@router.get("/committor", responses=examples.errors(422, 503), summary="Your measurements, newest first")
@router.get("/v1/committor", response_model=wire.CommittorJobList, include_in_schema=False)
async def page(
    request: Request, service: ServiceDep, limit: Limit = 20, after: After = None, status: JobStatus | None = None
) -> wire.CommittorJobList:
    """Without results; GET /committor/{id} has them."""
    records = await _page(
        service.jobs,
        partial(service.jobs.store.page, caller_of(request), limit + 1, after, status),
    )
    return wire.CommittorJobList(
        data=[job_reply(job, result=False) for job in records[:limit]], has_more=len(records) > limit
    )


@router.get("/committor/horizons", responses=examples.errors(422, 503), summary="Your measured horizons, newest first")
@router.get("/v1/committor/horizons", response_model=wire.HorizonList, include_in_schema=False)
async def horizons(request: Request, service: ServiceDep, limit: Limit = 20, after: After = None) -> wire.HorizonList:
    """Each serves `gate.source` 'recorded' for its prompt, constraint, model and regime."""
    records = await _page(service.jobs, partial(service.jobs.horizons.page, caller_of(request), limit + 1, after))
    return wire.HorizonList(data=[_horizon(record) for record in records[:limit]], has_more=len(records) > limit)


@router.delete("/committor/horizons/{horizon_id}", status_code=204, responses=_GET, summary="Forget a measured horizon")
@router.delete("/v1/committor/horizons/{horizon_id}", status_code=204, include_in_schema=False)
async def forget(request: Request, service: ServiceDep, horizon_id: str) -> None:
    """Requests with `gate.source` 'recorded' then fall back again."""
    jobs = service.jobs
    if not await jobs.query(partial(jobs.horizons.forget, caller_of(request), horizon_id)):
        raise ApiError(404, "there is no such horizon of yours", code="not_found")


@router.get("/committor/{job_id}", responses=_GET, summary="A measurement: status, progress, result")
@router.get("/v1/committor/{job_id}", response_model=wire.CommittorJob, include_in_schema=False)
async def follow(request: Request, service: ServiceDep, job_id: str) -> wire.CommittorJob:
    """`result` is null until `status` is 'succeeded'."""
    jobs = service.jobs
    return _own(await jobs.query(partial(jobs.store.get, caller_of(request), job_id)))


@router.delete("/committor/{job_id}", responses=_GET, summary="Cancel a measurement")
@router.delete("/v1/committor/{job_id}", response_model=wire.CommittorJob, include_in_schema=False)
async def cancel(request: Request, service: ServiceDep, job_id: str) -> wire.CommittorJob:
    """A finished one stays as it is."""
    jobs = service.jobs
    return _own(await jobs.query(partial(jobs.cancel, caller_of(request), job_id)))


async def _page(jobs: JobWorker, query: Callable[[], list[T]]) -> list[T]:
    try:
        return await jobs.query(query)
    except UnknownEntryError:
        raise invalid("after", "is no entry of yours (any more); begin again without it") from None


def _own(job: JobRecord | None) -> wire.CommittorJob:
    if job is None:
        raise ApiError(404, "there is no such measurement of yours", code="not_found")
    return job_reply(job)


def job_reply(job: JobRecord, *, result: bool = True) -> wire.CommittorJob:
    return wire.CommittorJob(
        id=job.id,
        status=job.status,
        created=job.created,
        started=job.started,
        finished=job.finished,
        model=job.model,
        model_hash=job.model_hash,
        request=job.request,
        progress=wire.Progress(
            rollouts=job.rollouts_done,
            rollouts_total=job.rollouts_total,
            forward_evaluations=job.rows_done,
            estimated_forward_evaluations=job.rows_estimated,
        ),
        result=wire.CommittorResult.model_validate(job.result) if result and job.result is not None else None,
        error=job.error,
    )


def _horizon(record: HorizonRecord) -> wire.HorizonInfo:
    steps = int(record.regime["steps"])
    return wire.HorizonInfo(
        id=record.id,
        prompt=record.prompt,
        constraint=record.constraint_spec,
        family=record.family,
        model_hash=record.model_hash,
        regime=record.regime,
        censored=record.step is None,
        step=record.step,
        fraction=None if record.step is None else record.step / steps,
        peak=record.peak,
        handoff_fate=record.handoff_fate,
        rollouts=record.rollouts,
        job=record.job_id,
        measured=record.measured,
    )
