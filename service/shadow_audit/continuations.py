"""Runs queued audits in the engine's spare rows: a bounded number at a time, each under a lease."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from decoding.engine.engine import EngineClosedError
from decoding.engine.handle import DecodingError, Handle
from decoding.engine.scheduler import QueueFullError
from decoding.request.job import Job
from decoding.request.validation import check_job
from service.backend.backend import Backend
from service.shadow_audit.sample import satisfied, shadow_jobs
from service.shadow_audit.store import ShadowStore
from service.shadow_audit.tables import AuditRecord, Served
from service.storage.leases import MAX_ATTEMPTS, LeaseLostError

logger = logging.getLogger(__name__)
POLL_SECONDS: Final = 1.0
BEATS_A_LEASE: Final = 3
PairCallback = Callable[[AuditRecord, bool, bool], None]
"""Called with each complete pair: the verdicts on the handoff's text and on the full continuation's."""


@dataclass(slots=True)
class RunningAudit:
    """An audit that this server holds; its continuations wait for room in the engine, then run."""

    audit: AuditRecord
    jobs: dict[Served, Job]
    handles: dict[Served, Handle] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return bool(self.handles) and all(handle.done for handle in self.handles.values())


class Auditor:
    """Belongs to one thread, which calls `step` again and again, and `stop` at the end."""

    def __init__(
        self,
        store: ShadowStore,
        backend: Backend,
        limit: int,
        lease_seconds: float,
        on_pair: PairCallback,
        on_missed: Callable[[int], None],
    ) -> None:
        self.store, self.backend, self.limit = store, backend, limit
        self.on_pair, self.on_missed = on_pair, on_missed
        self._running: list[RunningAudit] = []
        self._next_look = 0.0
        self._beat = lease_seconds / BEATS_A_LEASE
        self._beaten = time.monotonic()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def step(self) -> int:
        """Claim what there is room for, run it, finish what has ended; how many ended. Raises `DatabaseError`."""
        self._claim()
        for running in list(self._running):
            self._submit(running)
        ended = [running for running in self._running if running.done]
        for running in ended:
            self._running.remove(running)  # first: where the database is gone, the audit is left to its lease
            self._guarded(running, self._finish)
        if time.monotonic() - self._beaten > self._beat:
            self._beaten = time.monotonic()
            for running in list(self._running):
                if not self._guarded(running, lambda held: self.store.heartbeat(held.audit)):
                    self._drop(running)
        return len(ended)

    def look_again(self) -> None:
        """There is something new to claim; without this the database is asked once in `POLL_SECONDS`."""
        self._next_look = 0.0

    def _claim(self) -> None:
        if len(self._running) < self.limit and time.monotonic() >= self._next_look:
            given_up = self.store.give_up(self.backend.model.spec.hash)
            if given_up:
                logger.warning("%d shadow audits are given up: each has stopped %d servers", given_up, MAX_ATTEMPTS)
                self.on_missed(given_up)
        while len(self._running) < self.limit and time.monotonic() >= self._next_look:
            audit = self.store.claim(self.backend.model.spec.hash)
            if audit is None:
                self._next_look = time.monotonic() + POLL_SECONDS
            else:
                self._begin(audit)

    def stop(self) -> None:
        """Give everything back. Raises `DatabaseError`."""
        for running in list(self._running):
            self._drop(running)
            self._guarded(running, lambda held: self.store.release(held.audit))

    def _begin(self, audit: AuditRecord) -> None:
        try:
            running = RunningAudit(audit, shadow_jobs(audit))
            for job in running.jobs.values():
                check_job(job, self.backend.model.spec, invariant=self.backend.engine.runner.invariant)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it cannot be rebuilt: {error}"
            self._guarded(RunningAudit(audit, {}), lambda held: self._fail(held, reason))
            return
        self._running.append(running)

    def _submit(self, running: RunningAudit) -> None:
        """Queue in the engine where it has room; a closed one takes nothing more, and the audit is given back later."""
        if running.handles:
            return
        try:
            handles = self.backend.engine.submit_all(running.jobs.values())
        except (QueueFullError, EngineClosedError):
            return
        running.handles = dict(zip(running.jobs, handles, strict=True))

    def _finish(self, running: RunningAudit) -> None:
        audit, texts = running.audit, dict(running.audit.texts or {})
        verdicts: dict[Served, bool | None] = {"handoff": audit.handoff_ok, "full": audit.full_ok}
        rows = 0
        try:
            for side, handle in running.handles.items():
                outcome = handle.result()
                texts[side] = handle.job.text(self.backend.model.codec, outcome.content)
                verdicts[side] = satisfied(handle.job.constraint, texts[side])
                rows += outcome.ledger.total
        except DecodingError as error:
            if error.reason == "cancelled":  # the engine closed under it
                self.store.release(audit)
                return
            self._fail(running, str(error))
            return
        except Exception as error:  # such as a predicate: one audit must not stop the others
            logger.exception("audit %s cannot be judged", audit.id)
            self._fail(running, f"it cannot be judged: {type(error).__name__}: {error}")
            return
        handoff, full = bool(verdicts["handoff"]), bool(verdicts["full"])
        self.store.finish(audit, handoff=handoff, full=full, rows=rows, texts=texts)
        self.on_pair(audit, handoff, full)

    def _fail(self, running: RunningAudit, error: str) -> None:
        logger.warning("audit %s failed: %s", running.audit.id, error)
        self.store.fail(running.audit, error)
        self.on_missed(1)

    def _drop(self, running: RunningAudit) -> None:
        self._running.remove(running)
        for handle in running.handles.values():
            handle.cancel()

    @staticmethod
    def _guarded(running: RunningAudit, call: Callable[[RunningAudit], None]) -> bool:
        """`call`, unless another server has taken the audit over meanwhile; whether it had not."""
        try:
            call(running)
        except LeaseLostError:
            logger.info("audit %s was taken over", running.audit.id)
            return False
        return True
