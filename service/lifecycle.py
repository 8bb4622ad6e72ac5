"""The state of the server (loading, ready, draining, failed) and the requests that it is running."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from enum import Enum
from functools import partial
from typing import TypeVar

from opentelemetry import trace

from decoding.constraints import warm_up
from decoding.engine.handle import DecodingError, Handle
from decoding.engine.scheduler import QueueFullError
from service.backend import backend
from service.backend.backend import Backend
from service.committor.worker import JobWorker
from service.config.settings import Settings
from service.generation.generation import Bridge, Generation
from service.generation.prepare import Prepared
from service.http import logs
from service.http.disconnect import StreamEndedError, until
from service.http.errors import ApiError, draining, not_ready
from service.metrics.recorder import Metrics
from service.shadow_audit.audit import Shadow
from service.storage.database import open_database
from service.storage.errors import DatabaseError
from service.workers import WorkerLane, Workers

logger = logging.getLogger(__name__)
GIVE_BACK_SECONDS = 15.0
"""How long a shutdown lets the database take to hear which jobs are given back; without, their leases run out."""
CLOSE_SECONDS = 60.0
"""How long the engine may take to end its step."""
T = TypeVar("T")


class Status(Enum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Service:
    """The one object that routes talk to. Lives on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.created = int(time.time())
        self.status = Status.LOADING
        self.failure: str | None = None
        self.active: set[Generation] = set()
        self._backend: Backend | None = None
        self._jobs: JobWorker | None = None
        self._shadow: Shadow | None = None
        self.keyring = settings.keyring
        self.workers = Workers()
        self._idle = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def backend(self) -> Backend:
        """The loaded model. Raises a 503 `ApiError` while there is none."""
        if self._backend is None:
            raise not_ready(self.failure or "the model is still loading")
        return self._backend

    @property
    def jobs(self) -> JobWorker:
        """Committor jobs and measured horizons. Raises a 503 `ApiError` while there is no model."""
        if self._jobs is None:
            raise not_ready(self.failure or "the model is still loading")
        return self._jobs

    @property
    def shadow(self) -> Shadow:
        """The shadow audit. Raises a 503 `ApiError` while there is no model."""
        if self._shadow is None:
            raise not_ready(self.failure or "the model is still loading")
        return self._shadow

    def open_backend(self) -> Backend:
        """The backend, for new work. Raises a 503 `ApiError` unless ready."""
        if self.status is Status.DRAINING:
            raise draining()
        if self.status is Status.FAILED:
            raise not_ready(self.failure or "the server has failed")
        return self.backend

    def check_engine(self) -> None:
        """Fail where the engine's thread has ended by itself: only a new process can decode again."""
        if self._backend is not None and self._backend.engine.failed and self.status is not Status.FAILED:
            self.failure, self.status = "the engine has ended; the server's log says why", Status.FAILED

    def admit(self) -> Backend:
        """`open_backend` for a request: a refusal is counted."""
        try:
            return self.open_backend()
        except ApiError as error:
            self.metrics.rejections.labels(error.code).inc()
            raise

    async def load(self) -> None:
        """Load the model on a separate thread, so that a shutdown need not wait for it."""
        logger.info("loading model %s", self.settings.model)
        loop = asyncio.get_running_loop()
        self._bridge = Bridge(loop)
        loaded: asyncio.Future[tuple[Backend, JobWorker, Shadow]] = loop.create_future()

        def settle(result: tuple[Backend, JobWorker, Shadow] | Exception) -> None:
            if loaded.cancelled():
                return
            if isinstance(result, Exception):
                loaded.set_exception(result)
            else:
                loaded.set_result(result)

        def run() -> None:
            result: tuple[Backend, JobWorker, Shadow] | Exception
            try:
                warm_up()
                database = open_database(self.settings.database)
                held = backend.load(self.settings, observer=self.metrics, on_update=self._bridge.on_update)
                jobs = JobWorker(self.settings, database, held, self.metrics)
                result = held, jobs, Shadow(self.settings, database, held, self.metrics, jobs.owner)
            except Exception as error:  # of any kind: `load` logs it
                result = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        threading.Thread(target=run, name="astargate-load", daemon=True).start()
        try:
            self._backend, self._jobs, self._shadow = await loaded
        except DatabaseError as error:
            logger.error("the database could not be opened: %s", error)
            self.failure, self.status = "the database could not be opened; the server's log says why", Status.FAILED
            return
        except Exception as error:
            logger.error("the model could not be loaded: %s", error)
            self.failure, self.status = "the model could not be loaded; the server's log says why", Status.FAILED
            return
        self.metrics.describe(self._backend.model.spec.name, self._backend.gate_version, self.settings.max_rows)
        if self.status is Status.LOADING:
            self._jobs.start()
            self._shadow.start()
            self.status = Status.READY
        logger.info("model %s (%s) is ready", self._backend.model.spec.name, self._backend.model.spec.hash)

    async def write(self, function: Callable[[], T]) -> T:
        """Run the writing of an answer on a worker thread."""
        return await self.workers.run(WorkerLane.ANSWER, function)

    async def _submit(self, prepared: Prepared) -> list[Handle]:
        """Admit all samples or none, on a worker thread: planning takes up to 20 ms a sample."""
        submitted = self.workers.submit(WorkerLane.PREPARE, self.admit().engine.submit_all, prepared.jobs)
        try:
            async with until(prepared.job.deadline):
                handles = await asyncio.wrap_future(submitted)
            self.admit()  # a drain that began meanwhile does not know of this request
        except QueueFullError:
            self.metrics.rejections.labels("queue_full").inc()
            raise
        except (ApiError, DecodingError, asyncio.CancelledError):
            submitted.add_done_callback(_abandon)  # a thread cannot be stopped: what it still submits ends at once
            raise
        return handles

    @asynccontextmanager
    async def generation(
        self, prepared: Prepared, route: str, *, every_step: bool = False
    ) -> AsyncIterator[Generation]:
        """Submit all samples or none; leaving the block cancels unfinished samples and counts the request."""
        prepared = self.shadow.choose(prepared)
        handles = await self._submit(prepared)
        self.metrics.admitted(prepared)
        if self.settings.log_prompts:
            for job in prepared.first_jobs:
                text = self.backend.model.codec.decode(list(job.prompt_ids))
                logs.PROMPTS.info("prompt of %s: %r", prepared.id, text, extra={"prompt": text})
        with (
            self.shadow.watching(prepared, handles),
            Generation(prepared, handles, self._bridge, every_step=every_step) as generation,
        ):
            self.active.add(generation)
            try:
                yield generation
                reason = generation.finish_reason
            except BaseException as error:
                reason = _finish_reason(error)
                raise
            finally:
                self.metrics.ended(route, generation, reason)
                trace.get_current_span().set_attributes(
                    {"astargate.policy": prepared.policy.preset, "astargate.finish_reason": reason}
                )
                self.active.discard(generation)
                if not self.active:
                    self._idle.set()

    def reload_keys(self) -> None:
        """Take the API keys as their file has them now; where it is wrong, keep those that there are."""
        try:
            self.keyring = self.settings.read_keyring()
        except ValueError as error:
            logger.error("the API keys stay as they were: %s", error)
        else:
            logger.info("the API keys are read anew: %d", len(self.keyring.entries))

    def hurry(self) -> None:
        """Let a drain wait no longer: what still runs ends with the error that the server shuts down."""
        self._hurried.set()
        self._idle.set()
        if self._jobs is not None:
            threading.Thread(target=self._jobs.drain, args=(0.0,), name="astargate-hurry", daemon=True).start()

    async def drain(self, seconds: float) -> None:
        """Take no new work, let running requests finish within `seconds`, then end the rest with a 503."""
        self.status = Status.DRAINING
        if self._shadow is not None:
            self._shadow.drain()
        jobs = None
        if self._jobs is not None:
            give_back = partial(self._jobs.drain, seconds)
            jobs = asyncio.create_task(_at_most(seconds + GIVE_BACK_SECONDS, "committor jobs", give_back))
        if self.active and not self._hurried.is_set():
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
        if self.active:
            logger.warning("%d requests are ended by the shutdown", len(self.active))
        for generation in tuple(self.active):
            generation.abort(ApiError(503, "the server shut down before this request ended", code="shutting_down"))
        if jobs is not None:
            await jobs

    async def close(self) -> None:
        """Give unfinished jobs back; stop the engine after its current step."""
        if self._shadow is not None:
            await _at_most(GIVE_BACK_SECONDS, "the shadow audit", self._shadow.close)
        if self._jobs is not None:
            await _at_most(GIVE_BACK_SECONDS, "committor jobs", self._jobs.close)
        if self._backend is not None:
            await _at_most(CLOSE_SECONDS, "the engine", self._backend.engine.close)
        self.workers.close()


async def _at_most(seconds: float, what: str, function: Callable[[], None]) -> None:
    """Run `function` on a thread of its own, and go on without it after `seconds`: a shutdown must end.

    A daemon: what is left of it ends with the process.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            function()
        except Exception:
            logger.exception("%s could not be ended in order", what)
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="astargate-shutdown", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        logger.warning("%s did not end within %g s; the shutdown goes on", what, seconds)


def _abandon(submitted: Future[list[Handle]]) -> None:
    """Cancel what was submitted for a request that is gone; any thread."""
    if not submitted.cancelled() and submitted.exception() is None:
        for handle in submitted.result():
            handle.cancel()


def _finish_reason(error: BaseException) -> str:
    """Label of a request that did not finish."""
    if isinstance(error, StreamEndedError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, DecodingError):
        return error.reason
    return "cancelled" if isinstance(error, ApiError | asyncio.CancelledError) else "error"
