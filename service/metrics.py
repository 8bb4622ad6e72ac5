"""What `/metrics` shows: an observer of the engine and of the routes, on a registry of its own.

Rows are counted from the requests' ledgers, step by step, so that the counters equal the ledgers summed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from decoding.constraints import FAMILIES
from decoding.gating import Decision, Gate
from decoding.handle import Handle
from decoding.observer import StepReport
from decoding.policy import FREEZE_GRID
from service.generation import Generation
from service.replies import decision_of
from service.schemas.generate import Sample
from service.translate import Prepared

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def family_label(family: str | None) -> str:
    """The family, or `other`: a label never holds what a client chose."""
    return family if family in FAMILIES else "other"


def package_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("astargate")
    except PackageNotFoundError:
        return "unknown"


@dataclass(slots=True)
class _Counted:
    """How much of a handle's ledger is in the counters."""

    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    abandoned: int = 0

    @property
    def total(self) -> int:
        return sum(self.rows.values())


class Metrics:
    """Implements `decoding.observer.Observer` (any thread) and takes the routes' counts (the event loop)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(namespace="astargate", registry=self.registry)
        self._seen: WeakKeyDictionary[Handle, _Counted] = WeakKeyDictionary()
        self._lock = threading.Lock()
        counter, histogram, gauge = self._counter, self._histogram, self._gauge
        self.rows = counter("forward_rows", "Forward evaluations: rows through the model.", "branch", "purpose")
        self.padding = counter("padding_rows", "Rows that only filled a tile; no request is charged for them.")
        self.spent = counter("forward_rows_spent", "Rows of finished samples.", "policy", "family")
        self.equivalent = counter(
            "forward_rows_full_cfg_equivalent",
            "Rows that full CFG (2T) costs for the same samples.",
            "policy",
            "family",
        )
        self.abandoned = counter("forward_rows_abandoned", "Rows of samples that failed or were cancelled.")
        self.steps = counter("denoising_steps", "Denoising steps, one for each sample that took part.", "phase")
        self.committed = counter("committed_tokens", "Canvas positions decided.")
        self.step_seconds = histogram("step_duration_seconds", "Wall time of an engine step.", (*FAST, 2.5, 10.0))
        self.step_rows = histogram("step_rows", "Rows in an engine step.", ROWS)
        self.overhead = histogram("step_overhead_seconds", "Part of a step outside the model.", FAST)
        self.decisions = counter("gate_decisions", "What became of guidance.", "family", "source", "decision")
        self.fallbacks = counter("gate_fallbacks", "Samples that no gate served.", "family", "reason")
        self.handoff = histogram("handoff_fraction", "Fraction of the steps at the handoff.", (*FREEZE_GRID, 0.8, 1.0))
        self.gate_seconds = histogram("gate_duration_seconds", "Wall time of one gate call, all samples due.", FAST)
        self.outcomes = counter("constraint_outcomes", "Verdicts on finished texts.", "family", "policy", "outcome")
        self.requests = counter("requests", "Answered requests.", "route", "policy", "finish_reason")
        self.running = gauge("requests_running", "Requests that the engine has begun.")
        self.waiting = gauge("requests_waiting", "Admitted requests that it has not.")
        self.queue_seconds = histogram("request_queue_seconds", "From admission to the first step.", SECONDS)
        self.request_seconds = histogram("request_duration_seconds", "From admission to the end.", SECONDS)
        self.first_commit = histogram("time_to_first_commit_seconds", "From admission to a first token.", SECONDS)
        self.rejections = counter("admission_rejections", "Requests that were not admitted.", "reason")
        self.build = gauge("build_info", "Versions; always 1.", "version", "model", "gate_version")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="astargate", registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, namespace="astargate", registry=self.registry, buckets=buckets)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, namespace="astargate", registry=self.registry)

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
        if handle.error is not None:
            return
        job, state = handle.job, handle.state
        policy, family = job.policy.preset, family_label(job.family)
        self.spent.labels(policy, family).inc(state.ledger.total)
        self.equivalent.labels(policy, family).inc(job.full_cfg_equivalent)
        decided = decision_of(job, state.handoff_step)
        self.decisions.labels(family, job.policy.gate.source, decided).inc()
        if decided == "handoff" and state.handoff_step is not None:
            self.handoff.observe(state.handoff_step / job.steps)

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
                if handle.error is not None:
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

    def ended(self, route: str, generation: Generation, finish_reason: str) -> None:
        """An admitted request was answered, or its client left."""
        self.requests.labels(route, generation.prepared.policy.preset, finish_reason).inc()
        self.request_seconds.observe(time.monotonic() - generation.began)
        for handle in generation.handles:
            if handle.first_run is not None:
                self.queue_seconds.observe(handle.first_run - handle.submitted)
            if handle.first_commit is not None:
                self.first_commit.observe(handle.first_commit - handle.submitted)

    def fell_back(self, prepared: Prepared) -> None:
        """The samples of an admitted request that no gate serves."""
        if prepared.fallback is not None:
            labels = family_label(prepared.job.family), prepared.fallback
            self.fallbacks.labels(*labels).inc(len(prepared.jobs))

    def judged(self, prepared: Prepared, samples: Iterable[Sample]) -> None:
        """The verdicts on finished samples."""
        for sample in samples:
            if sample.satisfied is not None:
                outcome = "satisfied" if sample.satisfied else "failed"
                labels = family_label(prepared.job.family), prepared.policy.preset, outcome
                self.outcomes.labels(*labels).inc()

    def describe(self, model: str, gate_version: str) -> None:
        self.build.labels(package_version(), model, gate_version).set(1)

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
