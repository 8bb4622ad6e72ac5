"""Runs committor jobs: threads claim queued ones from the database, and small ones run while their caller waits."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import ValidationError

from decoding.engine.handle import DecodingError
from service.backend.backend import Backend
from service.committor.horizons import CallerHorizons, HorizonStore
from service.committor.plan import CommittorPlan, plan_of
from service.committor.result import measured_of, result_of
from service.committor.run import JobRun, NothingToMeasureError, StoppedError
from service.committor.store import JobStore, NewJob, QueueLimitError, QueueLimits
from service.committor.tables import JobRecord
from service.config.settings import Settings
from service.http.errors import ApiError, invalid
from service.metrics.recorder import Metrics
from service.schemas.committor import CommittorRequest
from service.storage.database import Database
from service.storage.errors import DatabaseError
from service.storage.leases import LeaseLostError

logger = logging.getLogger(__name__)
T = TypeVar("T")

INLINE: Final = 4
"""Small jobs that run at once while their callers wait; further ones are queued."""
DATABASE_THREADS: Final = 4
POLL_SECONDS: Final = 1.0
PURGE_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 86_400.0
BEATS_A_LEASE: Final = 3
LARGEST_REQUEST: Final = 256 << 10
"""Characters of a request that is kept as a job: the largest lists of words have half as many."""
KEPT_JOBS: Final = 1000
"""Ended jobs of a key that are kept, the newest ones."""
SERVER_FAULT: Final = "the server failed on this job; its log says why"


@dataclass(slots=True)
class _Running:
    """A job that this server holds."""

    job: JobRecord
    inline: bool
    stop: threading.Event = field(default_factory=threading.Event)


class JobWorker:
    """Committor jobs and measured horizons of one server process. Methods may be called from any thread."""

    def __init__(self, settings: Settings, database: Database, backend: Backend, metrics: Metrics) -> None:
        self.owner = f"{socket.gethostname()[:20]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.settings, self.backend, self.metrics = settings, backend, metrics
        self.database = database
        self.store = JobStore(database, self.owner, settings.lease_seconds)
        self.horizons = HorizonStore(database)
        self.limits = QueueLimits(settings.committor_jobs_per_key, settings.committor_jobs)
        self._spec = backend.model.spec
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._draining = threading.Event()
        self._ending = threading.Event()
        self._closed = threading.Event()
        self._inline_futures: set[Future[None]] = set()
        self._inline = ThreadPoolExecutor(INLINE, "astargate-committor")
        self._queries = ThreadPoolExecutor(DATABASE_THREADS, "astargate-database")
        self._threads: list[threading.Thread] = []

    def start(self) -> JobWorker:
        """Begin to claim jobs."""
        slots = [(f"astargate-job-{index}", self._slot) for index in range(self.settings.committor_slots)]
        for name, target in [*slots, ("astargate-leases", self._keep)]:
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()
        return self

    @property
    def reachable(self) -> bool:
        """Whether the database answers, by the last that was asked of it (at most some seconds ago)."""
        return self.database.reachable

    # -- callers ---------------------------------------------------------------------------------------------------

    async def query(self, call: Callable[[], T]) -> T:
        """Run a database call on a database thread, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._queries, call)

    def submit(
        self, key_id: str, request: CommittorRequest, plan: CommittorPlan
    ) -> tuple[JobRecord, Future[None] | None]:
        """Queue a job; or begin with a small one at once and return the future of its end. Raises a 429 `ApiError`."""
        asked = request.model_dump(mode="json", exclude_unset=True)
        if (size := len(json.dumps(asked))) > LARGEST_REQUEST:
            raise invalid(None, f"the request has {size} characters; at most {LARGEST_REQUEST} are kept", "too_large")
        new = NewJob(
            key_id=key_id,
            request=asked,
            model=self._spec.name,
            model_hash=self._spec.hash,
            rollouts_total=plan.rollouts,
            rows_estimated=plan.rows,
        )
        with self._lock:
            inline = plan.rows <= self.settings.committor_inline_rows and len(self._inline_futures) < INLINE
        try:
            job = self.store.add(new, self.limits, claimed=inline)
        except QueueLimitError as error:
            seconds = error.rows_ahead / max(1.0, self.backend.engine.scheduler.rows_per_second)
            retry = str(min(3600, max(1, math.ceil(seconds))))
            raise ApiError(429, str(error), code="queue_full", headers={"Retry-After": retry}) from None
        if not inline:
            self._wake.set()
            return job, None
        future = self._inline.submit(self._run, job, inline=True)
        with self._lock:
            self._inline_futures.add(future)
        future.add_done_callback(self._inline_ended)
        return job, future

    def _inline_ended(self, future: Future[None]) -> None:
        with self._lock:
            self._inline_futures.discard(future)

    def cancel(self, key_id: str, job_id: str) -> JobRecord | None:
        """Cancel a job of this key's; None where there is none."""
        job = self.store.cancel(key_id, job_id)
        if job is not None and job.status == "cancelled":
            self._stop(lambda running: running.job.id == job_id)
        return job

    def horizons_of(self, key_id: str) -> CallerHorizons:
        return CallerHorizons(self.horizons, key_id)

    # -- shutdown --------------------------------------------------------------------------------------------------

    def drain(self, seconds: float) -> None:
        """Claim nothing more and give queued work back; callers that wait get `seconds` for theirs."""
        self._draining.set()
        self._wake.set()
        self._stop(lambda running: not running.inline)
        for slot in self._threads[:-1]:
            slot.join()
        with self._lock:
            waiting = set(self._inline_futures)
        wait(waiting, seconds)
        self._ending.set()
        self._stop(lambda running: True)
        wait(waiting)

    def close(self) -> None:
        """Give everything back at once, and close the database."""
        self.drain(0.0)
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._inline.shutdown()
        self._queries.shutdown(cancel_futures=True)
        self.database.close()

    # -- workers ---------------------------------------------------------------------------------------------------

    def _stop(self, wanted: Callable[[_Running], bool]) -> None:
        with self._lock:
            for running in self._running.values():
                if wanted(running):
                    running.stop.set()

    def _slot(self) -> None:
        """Claim and run jobs, one at a time, until the server drains."""
        while not self._draining.is_set():
            self._wake.clear()
            job = None
            try:
                job = self.store.claim(self._spec.hash)
            except DatabaseError as error:
                logger.warning("no job can be claimed: %s", error)
            except Exception:
                logger.exception("no job can be claimed")
            if job is None:
                self._wake.wait(POLL_SECONDS)
            else:
                self._run(job, inline=False)

    def _run(self, job: JobRecord, *, inline: bool) -> None:
        """Run a claimed job until it succeeds, fails, stops or is taken over."""
        running = _Running(job, inline)
        with self._lock:
            self._running[job.id] = running
        if (self._ending if inline else self._draining).is_set():
            running.stop.set()
        try:
            self._finish(running)
        except LeaseLostError:
            logger.info("job %s was cancelled or taken over", job.id)
        except DatabaseError as error:
            logger.warning("job %s is left to its lease: %s", job.id, error)
        except Exception:
            logger.exception("job %s is left to its lease", job.id)
        finally:
            with self._lock:
                del self._running[job.id]

    def _finish(self, running: _Running) -> None:
        job, model = running.job, self.backend.model
        try:
            plan = plan_of(CommittorRequest.model_validate(job.request), model, self.settings)
            in_flight, on_rollouts = self.settings.background_in_flight, self.metrics.rolled_out
            run = JobRun(job, plan, model, self.backend.engine, self.store, running.stop, in_flight, on_rollouts)
            result = result_of(plan, run.run(), model.spec.mask_id)
            measured = measured_of(plan, job, result)

            def succeed() -> None:
                with self.store.finishing(job, result.model_dump(mode="json")) as connection:
                    if measured is not None:
                        self.horizons.record(connection, job.key_id, measured)

            run.lasting(succeed)
        except StoppedError:
            self.store.release(job)
        except (LeaseLostError, DatabaseError):
            raise
        except (ApiError, ValidationError, NothingToMeasureError) as error:
            self.store.fail(job, str(error))
        except DecodingError as error:
            if error.reason == "cancelled":  # the engine closed under it
                self.store.release(job)
                return
            logger.error("job %s failed: %s", job.id, error)
            self.store.fail(job, SERVER_FAULT)
        except Exception:
            logger.exception("job %s failed", job.id)
            self.store.fail(job, SERVER_FAULT)

    def _keep(self) -> None:
        """Extend leases, stop jobs that another server took over, update the metrics, delete old jobs."""
        beat, purged = self.settings.lease_seconds / BEATS_A_LEASE, -math.inf
        while not self._closed.wait(min(beat, POLL_SECONDS)):
            with self._lock:
                held = list(self._running.values())
            try:
                for running in held:
                    self._beat(running)
                self.metrics.jobs_unfinished(self.store.counts())
                if time.monotonic() - purged > PURGE_SECONDS:
                    self.store.purge(self.settings.committor_retention_days * DAY_SECONDS, KEPT_JOBS)
                    purged = time.monotonic()
            except DatabaseError as error:
                logger.warning("leases cannot be extended: %s", error)
            except Exception:
                logger.exception("leases cannot be extended")

    def _beat(self, running: _Running) -> None:
        try:
            self.store.heartbeat(running.job)
        except LeaseLostError:
            running.stop.set()
