"""Runs audits in the engine's spare rows: a bounded number at a time, each under a lease, judged when they end."""

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
Told = Callable[[AuditRecord, bool, bool], None]
"""Hears of a complete pair: the verdicts on the handoff's text and on the full continuation's."""


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
        most: int,
        lease_seconds: float,
        told: Told,
        missed: Callable[[int], None],
    ) -> None:
        self.store, self.backend, self.most = store, backend, most
        self.told, self.missed = told, missed
        self._flights: list[RunningAudit] = []
        self._look_at = 0.0
        self._beat = lease_seconds / BEATS_A_LEASE
        self._beaten = time.monotonic()

    @property
    def busy(self) -> bool:
        return bool(self._flights)

    def step(self) -> int:
        """Claim what there is room for, run it, finish what has ended; how many ended. Raises `DatabaseError`."""
        self._claim()
        for flight in list(self._flights):
            self._submit(flight)
        ended = [flight for flight in self._flights if flight.done]
        for flight in ended:
            self._flights.remove(flight)  # first: where the database is gone, the audit is left to its lease
            self._guarded(flight, self._finish)
        if time.monotonic() - self._beaten > self._beat:
            self._beaten = time.monotonic()
            for flight in list(self._flights):
                if not self._guarded(flight, lambda held: self.store.heartbeat(held.audit)):
                    self._drop(flight)
        return len(ended)

    def look(self) -> None:
        """There is something new to claim; without this the database is asked once in `POLL_SECONDS`."""
        self._look_at = 0.0

    def _claim(self) -> None:
        if len(self._flights) < self.most and time.monotonic() >= self._look_at:
            given_up = self.store.give_up(self.backend.model.spec.hash)
            if given_up:
                logger.warning("%d shadow audits are given up: each has stopped %d servers", given_up, MAX_ATTEMPTS)
                self.missed(given_up)
        while len(self._flights) < self.most and time.monotonic() >= self._look_at:
            audit = self.store.claim(self.backend.model.spec.hash)
            if audit is None:
                self._look_at = time.monotonic() + POLL_SECONDS
            else:
                self._begin(audit)

    def stop(self) -> None:
        """Give everything back. Raises `DatabaseError`."""
        for flight in list(self._flights):
            self._drop(flight)
            self._guarded(flight, lambda held: self.store.release(held.audit))

    def _begin(self, audit: AuditRecord) -> None:
        try:
            flight = RunningAudit(audit, shadow_jobs(audit))
            for job in flight.jobs.values():
                check_job(job, self.backend.model.spec, invariant=self.backend.engine.runner.invariant)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it cannot be rebuilt: {error}"
            self._guarded(RunningAudit(audit, {}), lambda held: self._fail(held, reason))
            return
        self._flights.append(flight)

    def _submit(self, flight: RunningAudit) -> None:
        """Queue in the engine where it has room; a closed one takes nothing more, and the audit is given back later."""
        if flight.handles:
            return
        try:
            handles = self.backend.engine.submit_all(flight.jobs.values())
        except (QueueFullError, EngineClosedError):
            return
        flight.handles = dict(zip(flight.jobs, handles, strict=True))

    def _finish(self, flight: RunningAudit) -> None:
        audit, texts = flight.audit, dict(flight.audit.texts or {})
        verdicts: dict[Served, bool | None] = {"handoff": audit.handoff_ok, "full": audit.full_ok}
        rows = 0
        try:
            for side, handle in flight.handles.items():
                outcome = handle.result()
                texts[side] = self.backend.model.codec.decode(list(outcome.content))
                verdicts[side] = satisfied(handle.job.constraint, texts[side])
                rows += outcome.ledger.total
        except DecodingError as error:
            if error.reason == "cancelled":  # the engine closed under it
                self.store.release(audit)
                return
            self._fail(flight, str(error))
            return
        except Exception as error:  # such as a predicate: one audit must not stop the others
            logger.exception("audit %s cannot be judged", audit.id)
            self._fail(flight, f"it cannot be judged: {type(error).__name__}: {error}")
            return
        handoff, full = bool(verdicts["handoff"]), bool(verdicts["full"])
        self.store.finish(audit, handoff=handoff, full=full, rows=rows, texts=texts)
        self.told(audit, handoff, full)

    def _fail(self, flight: RunningAudit, error: str) -> None:
        logger.warning("audit %s failed: %s", flight.audit.id, error)
        self.store.fail(flight.audit, error)
        self.missed(1)

    def _drop(self, flight: RunningAudit) -> None:
        self._flights.remove(flight)
        for handle in flight.handles.values():
            handle.cancel()

    @staticmethod
    def _guarded(flight: RunningAudit, call: Callable[[RunningAudit], None]) -> bool:
        """`call`, unless another server has taken the audit over meanwhile; whether it had not."""
        try:
            call(flight)
        except LeaseLostError:
            logger.info("audit %s was taken over", flight.audit.id)
            return False
        return True
