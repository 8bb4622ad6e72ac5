"""The engine decodes many requests at once: each of its steps runs one denoising step of those that fit."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, Self

import torch

from decoding.engine.gate_calls import ask_gates
from decoding.engine.handle import DecodingError, DecodingResult, Handle, result_of
from decoding.engine.judge_thread import JudgeThread
from decoding.engine.observer import GateReport, JudgeReport, NullObserver, Observer, StepMeter
from decoding.engine.runner import Runner, StepResult
from decoding.engine.scheduler import Scheduler
from decoding.models.protocol import DenoisingModel
from decoding.records.ledger import Ledger
from decoding.repair.loop import Action, Continue, RepairLoop, RunRollouts
from decoding.request.canvas import CanvasState
from decoding.request.job import Job
from decoding.request.validation import check_job

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class EngineClosedError(RuntimeError):
    """The engine is draining or closed and takes no more jobs."""


class Engine:
    """Decodes jobs on a model, many at a time.

    `threads` is torch's thread count on the engine thread. `on_update` is called once a step with the handles that have
    events or ended (a server hands it to its event loop). Use as a context manager, or `start` and `close`.
    """

    def __init__(
        self,
        model: DenoisingModel,
        *,
        runner: Runner | None = None,
        scheduler: Scheduler[Handle] | None = None,
        threads: int = 1,
        observer: Observer | None = None,
        on_update: Callable[[list[Handle]], None] | None = None,
    ) -> None:
        self.model = model
        self.runner = runner or Runner(model)
        self.scheduler: Scheduler[Handle] = scheduler or Scheduler()
        self.observer: Observer = observer or NullObserver()
        self.on_update = on_update or (lambda handles: None)
        self.threads = threads
        self._lock = threading.Condition()
        self._accepting = True
        self._stopping = False
        self._arrived: list[Handle] = []
        self._updated: dict[Handle, None] = {}
        self._verdicts: deque[JudgeReport] = deque()
        self._judges = JudgeThread(self._notified)
        self._thread: threading.Thread | None = None
        self.failed = False
        """Whether the engine's thread has ended by itself; it takes no more jobs then."""

    # -- callers -----------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Handle:
        """Queue a job. Raises `JobError` where it is malformed, `QueueFullError` where there is no room,
        `EngineClosedError`.
        """
        return self.submit_all([job])[0]

    def submit_all(self, jobs: Iterable[Job]) -> list[Handle]:
        """Queue jobs together: all or none."""
        spec = self.model.spec
        jobs = list(jobs)
        for job in jobs:
            check_job(job, spec, invariant=self.runner.invariant)
        for handle in (handles := [self._handle(job) for job in jobs]):
            _ = handle.estimated_rows  # before the lock: a dry run of the schedule
        with self._lock:
            if not self._accepting:
                raise EngineClosedError("the engine is shutting down and takes no new work")
            self.scheduler.check_admission(handles)
            for handle in handles:
                self.scheduler.add(handle)
            self._arrived += handles
            self._lock.notify_all()
        return handles

    def _handle(self, job: Job) -> Handle:
        repair_loop = RepairLoop(job, self.model.spec, self.model.codec) if job.judged else None
        return Handle(self._state(job.attempt(0), Ledger()), self._cancelled, repair_loop, job=job)

    def _state(self, job: Job, ledger: Ledger) -> CanvasState:
        spec = self.model.spec
        return CanvasState(job, spec.mask_id, spec.end_ids, spec.continuation_ids, ledger, spec.text_margins)

    def start(self) -> Self:
        """Start the engine's thread."""
        if self._thread is not None:
            raise RuntimeError("the engine has been started already")
        self._judges.start()
        self._thread = threading.Thread(target=self._loop, name="astargate-engine", daemon=True)
        self._thread.start()
        return self

    def drain(self, timeout: float | None = None) -> bool:
        """Take no new jobs and wait for the rest; True where all ended in time."""
        with self._lock:
            self._accepting = False
            return self._lock.wait_for(lambda: self.scheduler.idle, timeout)

    def close(self) -> None:
        """Stop after the current step; whatever is unfinished is cancelled."""
        with self._lock:
            self._accepting = False
            self._stopping = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._judges.close()
        for handle in self.scheduler.requests():
            self._end(handle, DecodingError("the server is shutting down", "cancelled"))
        self._notify_callers()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        try:
            self._decode()
        except BaseException as error:  # SystemExit, say, from within a model's code
            logger.critical("the engine's thread has ended", exc_info=error)
            with self._lock:
                self._accepting, self.failed = False, True
            for handle in self.scheduler.requests():
                self._end(handle, DecodingError("the engine has ended; see the server's log"))
            self._notify_callers()

    def _decode(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or bool(self._verdicts) or self.scheduler.runnable)
                if self._stopping:
                    return
            try:
                self.step()
            except Exception as error:  # an engine that dies would hang every client
                logger.exception("engine step failed")
                for handle in self.scheduler.requests():
                    self._end(handle, _failure("the engine failed; see the server's log", error))
                self._notify_callers()

    def step(self) -> bool:
        """One denoising step for whatever the scheduler picks; False where nothing was waiting."""
        with self._metered() as meter:
            self._receive()
            plan = self._plan(meter)
            results = self._run(plan)
            meter.committed = self._apply(results)
            self._finish([handle for handle, _ in results])
        return bool(plan) or bool(self._verdicts)

    @contextmanager
    def _metered(self) -> Iterator[StepMeter]:
        """Measure a step, report it, and then tell callers: a result is counted before anybody sees it."""
        meter = StepMeter(self.runner.counts)
        yield meter
        if meter.plan:
            report = meter.report()
            self.scheduler.observe_speed(report.rows, report.seconds)
            self._guarded(self.observer.on_step, report)
        self._notify_callers()

    def _receive(self) -> None:
        """Take in verdicts, let the gates see what has arrived, end what has nothing to do (a full start canvas)."""
        while self._verdicts:
            verdict = self._verdicts.popleft()
            if not verdict.handle.done:
                self._go_on(verdict.handle, verdict.action)
        with self._lock:
            arrived, self._arrived = [handle for handle in self._arrived if not handle.done], []
        self._ask_gates(arrived, arriving=True)
        self._finish(arrived)

    def _plan(self, meter: StepMeter) -> list[Handle]:
        """The requests of this step; those whose deadline has passed are ended first."""
        with self._lock:
            for handle in self.scheduler.requests():
                if meter.began > (handle.job.deadline or math.inf):
                    self._end(handle, DecodingError("the request's deadline has passed", "deadline"))
            plan = self.scheduler.plan()
        for handle in plan:
            handle.first_run = handle.first_run or meter.began
        meter.start(plan)
        return plan

    def _run(self, handles: list[Handle]) -> list[tuple[Handle, StepResult]]:
        """Run a step; where the model raises, halve the batch until the request at fault stands alone and fails."""
        if not handles:
            return []
        try:
            return list(zip(handles, self.runner.run([handle.state for handle in handles]), strict=True))
        except Exception as error:
            if len(handles) == 1:
                logger.exception("request %d failed in the model", handles[0].id)
                what = f"the model failed on this request: {type(error).__name__}: {error}"
                self._end(handles[0], _failure(what, error))
                return []
            middle = len(handles) // 2
            return self._run(handles[:middle]) + self._run(handles[middle:])

    def _apply(self, results: list[tuple[Handle, StepResult]]) -> int:
        """Commit what the step chose, then let the gates see it; returns the number of positions decided."""
        committed = sum(self._commit(handle, result) for handle, result in results)
        self._ask_gates([handle for handle, _ in results if not handle.done and not handle.state.finished])
        return committed

    def _commit(self, handle: Handle, result: StepResult) -> int:
        if handle.done:  # cancelled while its step ran
            return 0
        if not result.finite:
            self._end(handle, DecodingError("the model produced NaN or infinite logits for this request"))
            return 0
        try:
            event = handle.state.apply(result.candidates, result.positions, result.attention)
        except Exception as error:
            logger.exception("request %d failed in the kernel", handle.id)
            self._end(handle, _failure(f"decoding failed: {type(error).__name__}: {error}", error))
            return 0
        decided = len(event.positions) + len(event.filled)
        if decided and handle.first_commit is None:
            handle.first_commit = time.monotonic()
        handle.publish(event)
        self._updated[handle] = None
        return decided

    def _finish(self, handles: Sequence[Handle]) -> None:
        """End what is finished, or let it be judged (after the gates: a handoff with no mask left is the end)."""
        for handle in handles:
            if handle.done or not handle.state.finished:
                continue
            handle.state.settle()
            if handle.owner is not None:
                self._end(handle, result_of(handle))
                self._judges.rollout_ended(handle.owner)
            elif handle.repair_loop is None:
                self._end(handle, result_of(handle))
            else:
                self._judges.judge(handle, handle.repair_loop)

    def _go_on(self, handle: Handle, action: Action | DecodingError) -> None:
        """Do as the verdict on a parked request says: end it, decode on from another canvas, or run rollouts."""
        match action:
            case None:
                self._end(handle, result_of(handle))
            case Continue():
                handle.state, handle.parked = self._state(action.job, handle.state.ledger), False
                handle.publish(action.event)
                self._updated[handle] = None
                with self._lock:
                    self._arrived.append(handle)
            case RunRollouts():
                states = [self._state(job, handle.state.ledger) for job in action.jobs]
                with self._lock:
                    if not handle.done:
                        handle.rollouts = [Handle(state, self._cancelled, owner=handle) for state in states]
                        for rollout in handle.rollouts:
                            self.scheduler.add(rollout)
            case DecodingError():
                self._end(handle, action)

    def _ask_gates(self, handles: Sequence[Handle], *, arriving: bool = False) -> None:
        ask_gates(handles, self.model.spec.hash, self._notified, arriving=arriving)

    def _notified(self, report: GateReport | JudgeReport) -> None:
        """Pass a gate's report on to the observer; keep a verdict, on the judge's thread, for the next step."""
        match report:
            case GateReport():
                self._guarded(self.observer.on_gate, report.gate, report.decisions, report.seconds)
            case JudgeReport():
                with self._lock:
                    self._verdicts.append(report)
                    self._lock.notify_all()

    def _cancelled(self, handle: Handle) -> None:
        self._end(handle, DecodingError("the request was cancelled", "cancelled"))

    def _end(self, handle: Handle, result: DecodingResult | DecodingError) -> None:
        with self._lock:
            if handle.done:
                return
            handle.finish(result)
            self.scheduler.remove(handle)
            for rollout in handle.rollouts:
                rollout.finish(DecodingError("the request has ended", "cancelled"))
                self.scheduler.remove(rollout)
            if handle.owner is None:
                self._updated[handle] = None
            self._lock.notify_all()
        if handle.owner is None:
            self._guarded(self.observer.on_end, handle)
        elif isinstance(result, DecodingError):
            self._end(handle.owner, result)

    @staticmethod
    def _guarded(call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call an observer; one that raises must not stop the engine."""
        try:
            call(*args, **kwargs)
        except Exception:
            logger.exception("an observer of the engine failed")

    def _notify_callers(self) -> None:
        with self._lock:
            updated, self._updated = list(self._updated), {}
        if updated:
            self._guarded(self.on_update, updated)


def _failure(message: str, cause: Exception) -> DecodingError:
    """An error of a request that keeps its cause: a log line under the request's own id shows both."""
    error = DecodingError(message)
    error.__cause__ = cause
    return error
