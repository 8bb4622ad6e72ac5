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

from decoding.gating import Gate
from decoding.handle import DecodingError, Handle, Outcome, outcome_of
from decoding.job import Job
from decoding.models.protocol import DenoisingModel
from decoding.observer import NullObserver, Observer, StepReport
from decoding.request import CanvasState
from decoding.runner import Runner, StepResult
from decoding.scheduler import Scheduler
from decoding.validation import check_job

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class EngineClosedError(RuntimeError):
    """The engine is draining or closed and takes no more jobs."""


class Engine:
    """Decodes jobs on a model, many at a time.

    `threads` is torch's thread count on the engine thread. `on_news` is called once a step with the handles that have
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
        on_news: Callable[[list[Handle]], None] | None = None,
    ) -> None:
        self.model = model
        self.runner = runner or Runner(model)
        self.scheduler: Scheduler[Handle] = scheduler or Scheduler()
        self.observer: Observer = observer or NullObserver()
        self.on_news = on_news or (lambda handles: None)
        self.threads = threads
        self._lock = threading.Condition()
        self._accepting = True
        self._stopping = False
        self._arrived: list[Handle] = []
        self._news: dict[Handle, None] = {}
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
        handles = [Handle(CanvasState(job, spec.mask_id, spec.end_ids), self._cancelled) for job in jobs]
        for handle in handles:
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

    def start(self) -> Self:
        """Start the engine's thread."""
        if self._thread is not None:
            raise RuntimeError("the engine has been started already")
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
                self._lock.wait_for(lambda: self._stopping or not self.scheduler.idle)
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
        counts = self.runner.counts
        before, padding, in_model = counts.total, counts.padding_rows, counts.model_seconds
        phases = [handle.state.phase for handle in plan]
        committed = 0
        if plan:
            for handle in plan:
                handle.first_run = handle.first_run or began
            results = self._run(plan)
            committed = sum(self._apply(handle, result) for handle, result in results)
            ran = [handle for handle, _ in results if not handle.done]
            self._ask_gates([handle for handle in ran if not handle.state.finished])
            self._finish(ran)  # after the gates: a handoff with nothing left to commit is the end
        if plan:
            seconds = time.monotonic() - began
            rows = counts.total - before
            self.scheduler.rows_per_second = 0.9 * self.scheduler.rows_per_second + 0.1 * rows / max(seconds, 1e-6)
            self._notify(
                self.observer.on_step,
                StepReport(
                    rows=rows,
                    padding_rows=counts.padding_rows - padding,
                    guided=phases.count("guided"),
                    base=phases.count("base"),
                    committed=committed,
                    seconds=seconds,
                    model_seconds=counts.model_seconds - in_model,
                    handles=plan,
                ),
            )
        self._tell()  # last: whoever hears of a result finds it counted
        return bool(plan)

    def _receive(self) -> None:
        """Let the gates see what has arrived; end what has nothing to do (a full start canvas)."""
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
            if handle.state.finished:
                handle.state.settle()
                self._end(handle, outcome_of(handle))

    def _ask_gates(self, handles: Sequence[Handle], *, arriving: bool = False) -> None:
        """Let the gates decide for every guided request that stands at one of its checkpoints; one call a gate.

        A job that arrives half done is also asked about where it has passed a checkpoint.
        """
        due: dict[int, tuple[Gate, list[Handle]]] = {}
        for handle in handles:
            state, gate = handle.state, handle.job.gate
            if state.phase != "guided":
                continue
            checkpoints = gate.checkpoints(handle.job.steps)
            if (
                checkpoints is None
                or state.step in checkpoints
                or (arriving and min(checkpoints, default=state.step + 1) < state.step)
            ):
                due.setdefault(id(gate), (gate, []))[1].append(handle)
        for gate, asked in due.values():
            began = time.monotonic()
            try:
                decisions = gate.decide([handle.state.view(self.model.spec.hash) for handle in asked])
            except Exception as error:
                logger.exception("gate %s failed", gate.source)
                for handle in asked:
                    handle.state.fallback_reason = f"the gate failed ({type(error).__name__}); guidance stays on"
                continue
            pairs = list(zip(asked, decisions, strict=True))
            for handle, decision in pairs:
                handle.state.decision = decision
                if decision.handoff:
                    handle.state.hand_off()
            self._notify(self.observer.on_gate, gate, pairs, time.monotonic() - began)

    def _expire(self, now: float) -> None:
        for handle in self.scheduler.requests():
            if now > (handle.job.deadline or math.inf):
                self._end(handle, DecodingError("the request's deadline has passed", "deadline"))

    def _cancelled(self, handle: Handle) -> None:
        self._end(handle, DecodingError("the request was cancelled", "cancelled"))

    def _end(self, handle: Handle, result: Outcome | DecodingError) -> None:
        with self._lock:
            if handle.done:
                return
            handle.finish(result)
            self.scheduler.remove(handle)
            self._news[handle] = None
            self._lock.notify_all()
        self._notify(self.observer.on_end, handle)

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
            self._notify(self.on_news, news)
