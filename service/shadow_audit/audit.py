"""The shadow audit: a share of the gates' decisions is checked by decoding the other way from the same state.

Samples are chosen by hash when their request is admitted, before anything is known of them. If a chosen sample was
handed off, its guided continuation runs in spare rows. If it kept guidance because its gate is suspended, the base tail
runs from the step where the gate would have handed off. Both verdicts are a pair for `gate_models.gates.monitor`.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from decoding.engine.handle import Handle
from decoding.gates.protocol import Gate
from decoding.request.job import regime_of
from service.backend.backend import Backend
from service.backend.watched_gates import AuditedGate, SuspendedChoice, WatchedGates, audited, held_gates
from service.config.settings import Settings
from service.generation.prepare import Prepared
from service.metrics.recorder import Metrics
from service.shadow_audit.continuations import POLL_SECONDS, Auditor
from service.shadow_audit.sample import (
    AuditCandidate,
    ChosenSample,
    SampleFailedError,
    case_of,
    decided,
    first_pass_ended,
)
from service.shadow_audit.store import ShadowStore
from service.shadow_audit.tables import AuditRecord, Served
from service.shadow_audit.verdicts import GateVerdicts
from service.storage.database import Database
from service.storage.errors import DatabaseError

logger = logging.getLogger(__name__)

BUSY_SECONDS: Final = 0.02
"""Pause between two looks at continuations that run."""
BACKLOG: Final = 1000
"""Chosen samples that may run or wait to be stored: each holds its whole run."""
PURGE_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 86_400.0
_SCALE: Final = 2.0**64


def chosen_samples(request_id: str, samples: int, share: float) -> frozenset[int]:
    """The samples of a request that are audited: each with probability `share`, by a hash of its name alone."""
    return frozenset(index for index in range(samples) if _uniform(f"{request_id}/{index}") < share)


def _uniform(name: str) -> float:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") / _SCALE


class Shadow:
    """The audit of one server process. `choose`, `watching`, `watch` and `gates` may be used from any thread."""

    def __init__(self, settings: Settings, database: Database, backend: Backend, metrics: Metrics, owner: str) -> None:
        self.settings, self.backend, self.metrics = settings, backend, metrics
        self.store = ShadowStore(database, owner, settings.lease_seconds)
        self.model_hash = backend.model.spec.hash
        self.watch = GateVerdicts(self.store, self.model_hash, held_gates(backend), settings, metrics)
        self.gates = WatchedGates(backend.gates, self.watch.suspended)
        limit = settings.background_in_flight if settings.audit_in_flight is None else settings.audit_in_flight
        self._auditor = Auditor(self.store, backend, limit, settings.lease_seconds, self._on_pair, metrics.audit_missed)
        self._arrived: queue.SimpleQueue[ChosenSample] = queue.SimpleQueue()
        self._lines: defaultdict[AuditedGate, deque[ChosenSample]] = defaultdict(deque)
        self._counts: defaultdict[AuditedGate, Counter[str]] = defaultdict(Counter)
        self._refresh_at = self._purge_at = 0.0
        self._wake = threading.Event()
        self._draining = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="astargate-shadow", daemon=True)

    def start(self) -> Shadow:
        """Begin to audit."""
        self._thread.start()
        return self

    # -- requests ----------------------------------------------------------------------------------------------------

    def choose(self, prepared: Prepared) -> Prepared:
        """`prepared` with the samples that are audited, recorded as their gate must see them where it is suspended."""
        watched = self._asked(prepared)
        if watched is None:
            return prepared
        gate, asked = watched
        share = self.watch.share(gate) if prepared.audit_share is None else prepared.audit_share
        chosen = chosen_samples(prepared.id, len(prepared.jobs), share)
        jobs = prepared.jobs
        if prepared.choice.gate is None and (asked.needs_stats or asked.checkpoints(prepared.job.steps) is None):
            jobs = tuple(
                replace(job, record="gate" if job.record == "commits" else "fill") if index in chosen else job
                for index, job in enumerate(jobs)
            )
        return replace(prepared, jobs=jobs, chosen=chosen)

    def _asked(self, prepared: Prepared) -> tuple[AuditedGate, Gate] | None:
        """The watched gate that a request has, or would have were it not suspended; None where there is no full-CFG run
        to compare with.
        """
        choice, job = prepared.choice, prepared.job
        withheld = choice.withheld if isinstance(choice, SuspendedChoice) and not job.handed_off else None
        asked = choice.gate or withheld
        if asked is None:
            return None
        gate = audited(asked, job.policy.gate, regime_of(job, self.model_hash))
        return None if gate is None else (gate, asked)

    @contextmanager
    def watching(self, prepared: Prepared, handles: Sequence[Handle]) -> Iterator[None]:
        """Takes in a request's chosen samples as they end. All must have ended when the block ends."""
        self._admitted(prepared, handles)
        try:
            yield
        finally:
            self._wake.set()

    def _admitted(self, prepared: Prepared, handles: Sequence[Handle]) -> None:
        """Quick: the work is done on the audit's thread."""
        watched = self._asked(prepared) if prepared.chosen else None
        if watched is None:
            return
        served: Served = "handoff" if prepared.choice.gate is not None else "full"
        for index in sorted(prepared.chosen):
            if self._arrived.qsize() + sum(map(len, tuple(self._lines.values()))) >= BACKLOG:
                self.metrics.audit_missed()
                continue
            self._arrived.put(ChosenSample(*watched, served, prepared.id, index, handles[index]))

    # -- shutdown ----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Run nothing more and give audits back; samples that end are still taken in."""
        self._draining.set()
        self._wake.set()

    def close(self) -> None:
        """Store what has ended, and stop."""
        self.drain()
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            self._wake.clear()
            last = self._closing.is_set()
            try:
                self.turn()
            except DatabaseError as error:
                logger.warning("the shadow audit waits: %s", error)
                self._closing.wait(POLL_SECONDS)
            except Exception:
                logger.exception("the shadow audit failed and goes on")
                self._closing.wait(POLL_SECONDS)
            if last:
                return
            self._wake.wait(BUSY_SECONDS if self._auditor.busy else POLL_SECONDS)

    def turn(self) -> None:
        """One round of the audit's thread: store what has ended, go on with continuations, take in their verdicts.

        Raises `DatabaseError`.
        """
        self._take()
        if self._draining.is_set():
            self._auditor.stop()
            return
        now = time.monotonic()
        if self._auditor.step() or now >= self._refresh_at:
            self.watch.refresh()
            self.metrics.audits_waiting(self.store.waiting())
            self._refresh_at = now + POLL_SECONDS
        if now >= self._purge_at:
            held = [gate.id for gate in self.watch.held]
            self.store.purge(self.settings.audit_retention_days * DAY_SECONDS, held)
            self._purge_at = now + PURGE_SECONDS

    def _take(self) -> None:
        """Store the samples that have ended, those of a gate in the order of their admission: which ends first may
        depend on the text. Samples that the database has no room for, or cannot take, are dropped.
        """
        while not self._arrived.empty():
            chosen = self._arrived.get()
            self._lines[chosen.gate].append(chosen)
        cases: list[AuditCandidate] = []
        for line in self._lines.values():
            while line and first_pass_ended(line[0].handle):
                case = self._case(line.popleft())
                if case is not None:
                    cases.append(case)
        if not cases and not self._counts:
            return
        dropped = len(cases)
        counts, self._counts = self._counts, defaultdict(Counter)
        try:
            dropped = self.store.keep(cases, counts, self.settings.audit_queue)
            self._auditor.look_again()
        finally:
            if dropped:
                logger.warning("%d shadow audits were dropped: the queue is full or cannot be reached", dropped)
                self.metrics.audit_missed(dropped)

    def _case(self, chosen: ChosenSample) -> AuditCandidate | None:
        """The audit of a sample; what has none is counted."""
        try:
            case = case_of(chosen, self.backend.model, self.backend.gates.reader)
            if case is None:
                self._counts[chosen.gate]["kept" if decided(chosen) else "unfinished"] += 1
            return case
        except SampleFailedError:
            self._counts[chosen.gate]["unfinished"] += 1
        except Exception:
            logger.exception("sample %d of %s cannot be audited", chosen.sample, chosen.request_id)
            self.metrics.audit_missed()
        return None

    def _on_pair(self, audit: AuditRecord, handoff: bool, full: bool) -> None:
        family = (audit.recipe or {}).get("family")
        self.metrics.audited(family, handoff=handoff, full=full)
