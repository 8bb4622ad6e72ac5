"""The counters behind `/metrics`: they observe the engine and the routes.

Rows are counted from the requests' ledgers at each step, and results from the samples of the answers. The counters
therefore equal the sum of the ledgers, and every row of a sample is either spent (an answer holds it) or abandoned.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args
from weakref import WeakKeyDictionary, WeakSet

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from decoding.engine.handle import Handle
from decoding.engine.observer import StepReport
from decoding.gates.protocol import Decision, Gate
from gate_models.gates.monitor import GateState
from service.config.version import package_version
from service.generation.generation import Generation
from service.generation.prepare import Prepared
from service.http.connections import Connections
from service.metrics import definitions as define
from service.metrics.definitions import Metric, family_label
from service.schemas.generate import Sample


@dataclass(slots=True)
class _Counted:
    """How much of a handle's ledger is in the counters."""

    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    abandoned: int = 0

    @property
    def total(self) -> int:
        return sum(self.rows.values())


class Metrics:
    """Implements `decoding.engine.observer.Observer` (any thread) and takes the counts of the routes.

    `service.metrics.definitions` says what each one means.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(namespace=define.PREFIX, registry=self.registry)
        self._seen: WeakKeyDictionary[Handle, _Counted] = WeakKeyDictionary()
        self._left: WeakSet[Handle] = WeakSet()
        self._unanswered: dict[str, set[int]] = {}
        self._lock = threading.Lock()
        self.rows = self._counter(define.ROWS)
        self.padding = self._counter(define.PADDING)
        self.spent = self._counter(define.SPENT)
        self.equivalent = self._counter(define.EQUIVALENT)
        self.skipped = self._counter(define.SKIPPED)
        self.abandoned = self._counter(define.ABANDONED)
        self.steps = self._counter(define.STEPS)
        self.committed = self._counter(define.COMMITTED)
        self.step_seconds = self._histogram(define.STEP_SECONDS)
        self.step_rows = self._histogram(define.STEP_ROWS)
        self.step_rows_limit = self._gauge(define.STEP_ROWS_LIMIT)
        self.overhead = self._histogram(define.STEP_OVERHEAD)
        self.decisions = self._counter(define.DECISIONS)
        self.evidence = self._counter(define.EVIDENCE)
        self.fallbacks = self._counter(define.FALLBACKS)
        self.handoff = self._histogram(define.HANDOFF)
        self.gate_seconds = self._histogram(define.GATE_SECONDS)
        self.gate_state = self._gauge(define.GATE_STATE)
        self.outcomes = self._counter(define.OUTCOMES)
        self.repairs = self._counter(define.REPAIRS)
        self.audit_pairs = self._counter(define.AUDIT_PAIRS)
        self.audit_dropped = self._counter(define.AUDIT_DROPPED)
        self.audit_gaps = self._gauge(define.AUDIT_GAP)
        self.audits_unfinished = self._gauge(define.AUDITS_WAITING)
        self.rollouts = self._counter(define.ROLLOUTS)
        self.jobs = self._gauge(define.JOBS)
        self.requests = self._counter(define.REQUESTS)
        self.running = self._gauge(define.RUNNING)
        self.waiting = self._gauge(define.WAITING)
        self.queue_seconds = self._histogram(define.QUEUE_SECONDS)
        self.request_seconds = self._histogram(define.REQUEST_SECONDS)
        self.first_commit = self._histogram(define.FIRST_COMMIT)
        self.rejections = self._counter(define.REJECTIONS)
        self.connections = self._gauge(define.CONNECTIONS)
        self.connections_limit = self._gauge(define.CONNECTIONS_LIMIT)
        self.refusals = self._counter(define.CONNECTIONS_REFUSED)
        self.build = self._gauge(define.BUILD)

    def _counter(self, metric: Metric) -> Counter:
        counter = Counter(
            metric.name, metric.text, tuple(metric.labels), namespace=define.PREFIX, registry=self.registry
        )
        for values in metric.series():
            counter.labels(*values)
        return counter

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name, metric.text, namespace=define.PREFIX, registry=self.registry, buckets=metric.buckets
        )

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.text, tuple(metric.labels), namespace=define.PREFIX, registry=self.registry)

    # -- the engine's observer -----------------------------------------------------------------------------------------

    def on_step(self, report: StepReport) -> None:
        self._count_rows(report.handles)
        self.padding.inc(report.padding_rows)
        self.steps.labels("guided").inc(report.guided)
        self.steps.labels("base").inc(report.base)
        self.committed.inc(report.committed)
        self.step_rows.observe(report.rows)
        self.step_seconds.observe(report.seconds)
        self.overhead.observe(max(0.0, report.seconds - report.model_seconds))

    def on_gate(self, gate: Gate, decisions: Sequence[tuple[Handle, Decision]], seconds: float) -> None:
        self.gate_seconds.observe(seconds)

    def on_end(self, handle: Handle) -> None:
        self._count_rows([handle])
        for attempted in list(handle.repair_loop.passes) if handle.repair_loop is not None else ():
            repair = handle.job.attempt(attempted.attempt).policy.repair
            if attempted.round and repair is not None:
                self.repairs.labels(repair.selector, "recovered" if attempted.satisfied else "failed").inc()

    def _count_rows(self, handles: Iterable[Handle]) -> None:
        """Add what ledgers have gained. A sample cancelled in the middle of a step is still charged for that step."""
        gained: Counts[tuple[str, str]] = Counts()
        abandoned = 0
        with self._lock:
            for handle in handles:
                counted = self._seen.setdefault(handle, _Counted())
                for key, rows in list(handle.state.ledger.rows.items()):
                    gained[key] += rows - counted.rows.get(key, 0)
                    counted.rows[key] = rows
                if handle.job.purpose not in define.BACKGROUND and (handle.error is not None or handle in self._left):
                    abandoned += counted.total - counted.abandoned
                    counted.abandoned = counted.total
        for labels, gain in gained.items():
            self.rows.labels(*labels).inc(gain)
        self.abandoned.inc(abandoned)

    # -- the routes ----------------------------------------------------------------------------------------------------

    def watch(self, active: Callable[[], Iterable[Generation]]) -> None:
        """Read the running and waiting requests from `active` at every scrape."""
        self.running.set_function(lambda: sum(generation.running for generation in list(active())))
        self.waiting.set_function(lambda: sum(not generation.running for generation in list(active())))

    def watch_connections(self, connections: Connections) -> None:
        """Read the open connections at every scrape."""
        waiting, held = connections.waiting, connections.open
        self.connections_limit.set(connections.limits.count)
        self.connections.labels("waiting").set_function(lambda: len(waiting))
        self.connections.labels("active").set_function(lambda: max(0, len(held) - len(waiting)))

    def connection_refused(self, reason: str) -> None:
        """A connection was ended early, for a `Refusal`."""
        self.refusals.labels(reason).inc()

    def admitted(self, prepared: Prepared) -> None:
        """A request was admitted; `ended` must follow. Counts the samples that no gate of their own serves."""
        with self._lock:
            self._unanswered[prepared.id] = set(range(len(prepared.jobs)))
        if prepared.fallback is not None:
            labels = family_label(prepared.job.family), prepared.fallback
            self.fallbacks.labels(*labels).inc(len(prepared.jobs))

    def judged(self, prepared: Prepared, samples: Iterable[Sample]) -> None:
        """Finished samples that an answer holds: their ledgers, gates and verdicts.

        Those of a request that has ended meanwhile are not counted.
        """
        for sample in samples:
            with self._lock:
                if sample.index not in self._unanswered.get(prepared.id, ()):
                    continue
                self._unanswered[prepared.id].remove(sample.index)
            self._sample(sample, prepared.policy.preset, family_label(prepared.job.family))
            if sample.gate.fallback_reason is not None and prepared.fallback is None:
                self.fallbacks.labels(family_label(prepared.job.family), define.GATE_FAILED).inc()

    def _sample(self, sample: Sample, policy: str, family: str) -> None:
        rows, gate = sample.forward_evaluations, sample.gate
        self.spent.labels(policy, family).inc(rows.total)
        self.equivalent.labels(policy, family).inc(rows.full_cfg_equivalent)
        self.skipped.labels(policy, family).inc(rows.skipped_by_eos)
        self.decisions.labels(family, gate.source, gate.decision).inc()
        self.evidence.labels(gate.evidence, gate.decision).inc()
        if gate.handoff_fraction is not None:
            self.handoff.observe(gate.handoff_fraction)
        if sample.satisfied is not None:
            self.outcomes.labels(family, policy, "satisfied" if sample.satisfied else "failed").inc()

    def abandon(self, handles: Iterable[Handle]) -> None:
        """No answer will hold the rows of these jobs, whether they have ended or not."""
        handles = list(handles)
        with self._lock:
            self._left.update(handles)
        self._count_rows(handles)

    def ended(self, route: str, generation: Generation, finish_reason: str) -> None:
        """An admitted request was answered, or its client left."""
        with self._lock:
            left = self._unanswered.pop(generation.prepared.id, set())
        self.abandon([generation.handles[index] for index in left])
        self.requests.labels(route, generation.prepared.policy.preset, finish_reason).inc()
        self.request_seconds.observe(time.monotonic() - generation.began)
        for handle in generation.handles:
            if handle.first_run is not None:
                self.queue_seconds.observe(handle.first_run - handle.submitted)
            if handle.first_commit is not None:
                self.first_commit.observe(handle.first_commit - handle.submitted)

    # -- committors, audits --------------------------------------------------------------------------------------------

    def rolled_out(self, count: int = 1) -> None:
        """Rollouts of a committor measurement finished."""
        self.rollouts.inc(count)

    def jobs_unfinished(self, counts: Mapping[str, int]) -> None:
        """How many committor jobs of each unfinished status the database holds, on all servers together."""
        for status in define.JOBS.labels["status"]:
            self.jobs.labels(status).set(counts.get(status, 0))

    def audited(self, family: str | None, *, handoff: bool, full: bool) -> None:
        """A shadow audit ended: whether the handoff's text and the full continuation's meet the constraint."""
        outcomes = {True: "ok", False: "fail"}
        self.audit_pairs.labels(family_label(family), f"{outcomes[handoff]}_{outcomes[full]}").inc()

    def audit_missed(self, count: int = 1) -> None:
        """Shadow audits that were due could not be run."""
        self.audit_dropped.inc(count)

    def audits_waiting(self, count: int) -> None:
        """How many shadow audits the database holds that are not finished, on all servers together."""
        self.audits_unfinished.set(count)

    def audit_gap(self, family: str, source: str, **bounds: float) -> None:
        """What the shadow audit of a family's gate says: `estimate` (NaN: none), `low` and `high`."""
        for bound, value in bounds.items():
            self.audit_gaps.labels(family, source, bound).set(value)

    def gate_states(self, states: Mapping[str, GateState]) -> None:
        """Where the gates of families stand; families that are not named keep their state."""
        for family, current in states.items():
            for state in get_args(GateState):
                self.gate_state.labels(family, state).set(state == current)

    def describe(self, model: str, gate_version: str, max_rows: int) -> None:
        """What is served; once, when the model is loaded."""
        self.build.labels(package_version(), model, gate_version).set(1)
        self.step_rows_limit.set(max_rows)

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
