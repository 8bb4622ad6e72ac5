"""The loop: schedule -> run -> apply -> events, on the engine's own thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import ParamSpec, Self

import torch

from decoding.engine.gate_calls import ask_gates
from decoding.engine.handle import DecodingError, DecodingResult, Handle, outcome_of
from decoding.engine.judge_thread import Found, JudgeThread
from decoding.engine.observer import NullObserver, Observer, StepMeter
from decoding.engine.runner import Runner, StepResult
from decoding.engine.scheduler import Scheduler
from decoding.gates.protocol import Decision, Gate
from decoding.models.protocol import DenoisingModel
from decoding.records.ledger import Ledger
from decoding.repair.loop import Continue, RepairLoop, RunRollouts
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
        self._news: dict[Handle, None] = {}
        self._judges = JudgeThread(self._lock)
        self._thread: threading.Thread | None = None

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
        pursuit = RepairLoop(job, self.model.spec, self.model.codec) if job.judged else None
        return Handle(self._state(job.attempt(0), Ledger()), self._cancelled, pursuit, job=job)

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
        self._tell()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or self._judges.ready or self.scheduler.runnable)
                if self._stopping:
                    return
            try:
                self.step()
            except Exception:  # an engine that dies would hang every client
                logger.exception("engine step failed")
                for handle in self.scheduler.requests():
                    self._end(handle, DecodingError("the engine failed; see the server's log"))
                self._tell()

    def step(self) -> bool:
        """One denoising step for whatever the scheduler picks; False where nothing was waiting."""
        began = time.monotonic()
        self._receive()
        with self._lock:
            self._expire(began)
            plan = self.scheduler.plan()
        meter = StepMeter(self.runner.counts, plan, began)
        if plan:
            for handle in plan:
                handle.first_run = handle.first_run or began
            results = self._run(plan)
            committed = sum(self._apply(handle, result) for handle, result in results)
            ran = [handle for handle, _ in results if not handle.done]
            self._ask_gates([handle for handle in ran if not handle.state.finished])
            self._finish(ran)  # after the gates: a handoff with nothing left to commit is the end
            report = meter.report(committed)
            self.scheduler.observe_speed(report.rows, report.seconds)
            self._notify(self.observer.on_step, report)
        self._tell()  # last: whoever hears of a result finds it counted
        return bool(plan) or self._judges.ready

    def _receive(self) -> None:
        """Take in verdicts, let the gates see what has arrived, end what has nothing to do (a full start canvas)."""
        for handle, found in self._judges.take():
            if not handle.done:
                self._go_on(handle, found)
        with self._lock:
            arrived, self._arrived = [handle for handle in self._arrived if not handle.done], []
        self._ask_gates(arrived, arriving=True)
        self._finish(arrived)

    def _run(self, handles: list[Handle]) -> list[tuple[Handle, StepResult]]:
        """Run a step; where the model raises, halve the batch until the request at fault stands alone and fails."""
        try:
            return list(zip(handles, self.runner.run([handle.state for handle in handles]), strict=True))
        except Exception as error:
            if len(handles) == 1:
                logger.exception("request %d failed in the model", handles[0].id)
                self._end(
                    handles[0], DecodingError(f"the model failed on this request: {type(error).__name__}: {error}")
                )
                return []
            middle = len(handles) // 2
            return self._run(handles[:middle]) + self._run(handles[middle:])

    def _apply(self, handle: Handle, result: StepResult) -> int:
        """Commit a step's result; returns the number of positions decided."""
        if handle.done:  # cancelled while its step ran
            return 0
        if not result.finite:
            self._end(handle, DecodingError("the model produced NaN or infinite logits for this request"))
            return 0
        try:
            event = handle.state.apply(result.candidates, result.positions)
        except Exception as error:
            logger.exception("request %d failed in the kernel", handle.id)
            self._end(handle, DecodingError(f"decoding failed: {type(error).__name__}: {error}"))
            return 0
        decided = len(event.positions) + len(event.filled)
        if decided and handle.first_commit is None:
            handle.first_commit = time.monotonic()
        handle.publish(event)
        self._news[handle] = None
        return decided

    def _finish(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            if handle.done or not handle.state.finished:
                continue
            handle.state.settle()
            if handle.owner is not None:
                self._end(handle, outcome_of(handle))
                self._judges.rolled_out(handle.owner)
            elif handle.pursuit is None:
                self._end(handle, outcome_of(handle))
            else:
                self._judges.finished(handle, handle.pursuit)

    def _go_on(self, handle: Handle, found: Found) -> None:
        """Do as the verdict on a parked request says: end it, decode on from another canvas, or run rollouts."""
        match found:
            case None:
                self._end(handle, outcome_of(handle))
            case Continue():
                handle.state, handle.parked = self._state(found.job, handle.state.ledger), False
                handle.publish(found.event)
                self._news[handle] = None
                with self._lock:
                    self._arrived.append(handle)
            case RunRollouts():
                states = [self._state(job, handle.state.ledger) for job in found.jobs]
                with self._lock:
                    if not handle.done:
                        handle.rollouts = [Handle(state, self._cancelled, owner=handle) for state in states]
                        for rollout in handle.rollouts:
                            self.scheduler.add(rollout)
            case DecodingError():
                self._end(handle, found)

    def _ask_gates(self, handles: Sequence[Handle], *, arriving: bool = False) -> None:
        def told(gate: Gate, decisions: list[tuple[Handle, Decision]], seconds: float) -> None:
            self._notify(self.observer.on_gate, gate, decisions, seconds)

        ask_gates(handles, self.model.spec.hash, told, arriving=arriving)

    def _expire(self, now: float) -> None:
        for handle in self.scheduler.requests():
            if now > (handle.job.deadline or math.inf):
                self._end(handle, DecodingError("the request's deadline has passed", "deadline"))

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
                self._news[handle] = None
            self._lock.notify_all()
        if handle.owner is None:
            self._notify(self.observer.on_end, handle)
        elif isinstance(result, DecodingError):
            self._end(handle.owner, result)

    @staticmethod
    def _notify(call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call an observer; one that raises must not stop the engine."""
        try:
            call(*args, **kwargs)
        except Exception:
            logger.exception("an observer of the engine failed")

    def _tell(self) -> None:
        with self._lock:
            news, self._news = list(self._news), {}
        if news:
            self._notify(self.on_update, news)
