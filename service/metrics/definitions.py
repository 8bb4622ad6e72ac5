"""Every metric of `/metrics`: name, meaning and the values that its labels may take.

The dashboards, the rules and their checks read this list too. Names are as PromQL sees them less the prefix
`astargate_` and a counter's `_total`. A label takes values that the code knows, never a client's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Final, Literal, get_args

from decoding.constraints import FAMILIES
from decoding.engine.handle import FinishReason
from decoding.gates.protocol import Evidence
from decoding.policy.decoding_policy import PRESETS
from decoding.policy.gate import GATE_SOURCES
from decoding.policy.repair import SELECTORS
from decoding.records.ledger import BRANCHES, PURPOSES
from decoding.records.trace import Phase
from gate_models.committor.choices import FREEZE_GRID
from gate_models.gates.monitor import OUTCOMES as PAIR_OUTCOMES
from gate_models.gates.monitor import GateState
from gate_models.gates.sources import watched_sources
from service.generation.fallback import FallbackCode
from service.generation.replies import Decided
from service.http.connections import Refusal

PREFIX: Final = "astargate"
Kind = Literal["counter", "gauge", "histogram"]

OTHER: Final = "other"
"""Label of a sample whose constraint belongs to no family."""
ANY: Final[tuple[str, ...]] = ()
"""Values that the operator chooses: versions, the name of the model."""
GATE_FAILED: Final = "gate_failed"
"""Fallback reason of a sample whose gate raised while it was decoded."""
BACKGROUND: Final = frozenset({"rollout", "audit"})
"""Purposes of rows that belong to no sample of a generate request."""

_FAMILY: Final = (*FAMILIES, OTHER)
_ROUTES: Final = ("/generate", "/v1/generate", "/v1/completions", "/v1/chat/completions")
_REJECTIONS: Final = (
    *("queue_full", "not_ready", "draining", "key_concurrency", "key_rate"),
    *("missing_api_key", "invalid_api_key", "missing_scope"),
)
_SECONDS: Final = (*(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5), *(1, 2.5, 5, 10, 30, 60, 120, 300))
_FAST: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `labels` maps a label to its possible values (`ANY`: the operator's)."""

    kind: Kind
    name: str
    text: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> tuple[str, ...]:
        """Names of its series, as PromQL has them."""
        name = f"{PREFIX}_{self.name}"
        suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
        return tuple(name + suffix for suffix in suffixes[self.kind])

    def series(self) -> Iterator[tuple[str, ...]]:
        """All label values of a counter. Each is exposed as 0 from the start: of a counter that appears with its first
        event, `increase` and `rate` never see that event.
        """
        if self.kind == "counter" and self.labels and all(self.labels.values()):
            yield from product(*self.labels.values())


def _counter(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    return Metric("counter", name, text, MappingProxyType(labels))


def _gauge(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    return Metric("gauge", name, text, MappingProxyType(labels))


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Metric:
    return Metric("histogram", name, text, buckets=buckets)


ROWS = _counter("forward_rows", "Forward evaluations: rows through the model.", branch=BRANCHES, purpose=PURPOSES)
PADDING = _counter("padding_rows", "Rows that only filled a tile; no request is charged for them.")
SPENT = _counter("forward_rows_spent", "Rows of answered samples.", policy=PRESETS, family=_FAMILY)
EQUIVALENT = _counter(
    "forward_rows_full_cfg_equivalent",
    "Rows that full CFG (2T) costs for the same samples.",
    policy=PRESETS,
    family=_FAMILY,
)
SKIPPED = _counter(
    "forward_rows_skipped_by_eos",
    "Rows of the same samples that an end-of-text made unnecessary; never a saving of the policy.",
    policy=PRESETS,
    family=_FAMILY,
)
ABANDONED = _counter("forward_rows_abandoned", "Rows of samples that no answer holds: failed or cancelled ones.")
STEPS = _counter("denoising_steps", "Denoising steps, one for each sample that took part.", phase=get_args(Phase))
COMMITTED = _counter("committed_tokens", "Canvas positions decided.")
STEP_SECONDS = _histogram("step_duration_seconds", "Wall time of an engine step.", (*_FAST, 2.5, 10))
STEP_ROWS = _histogram("step_rows", "Rows in an engine step.", _ROWS)
STEP_ROWS_LIMIT = _gauge("step_rows_limit", "Rows that one engine step may hold.")
STEP_OVERHEAD = _histogram("step_overhead_seconds", "Part of a step outside the model.", _FAST)
DECISIONS = _counter(
    "gate_decisions", "What became of guidance.", family=_FAMILY, source=GATE_SOURCES, decision=get_args(Decided)
)
EVIDENCE = _counter(
    "gate_evidence",
    "What is known of the gates that decided: audited in the very setting, pooled over many settings, or nothing.",
    evidence=get_args(Evidence),
    decision=get_args(Decided),
)
FALLBACKS = _counter(
    "gate_fallbacks",
    "Samples that no gate of their own served.",
    family=_FAMILY,
    reason=(*get_args(FallbackCode), GATE_FAILED),
)
HANDOFF = _histogram("handoff_fraction", "Fraction of the steps at the handoff.", (*FREEZE_GRID, 0.8, 1))
GATE_SECONDS = _histogram("gate_duration_seconds", "Wall time of one gate call, all samples due.", _FAST)
GATE_STATE = _gauge(
    "gate_state",
    "1 for the state of a family's gate: uncertified until the shadow audit has shown that it does no harm.",
    family=FAMILIES,
    state=get_args(GateState),
)
OUTCOMES = _counter(
    "constraint_outcomes",
    "Verdicts on finished texts.",
    family=_FAMILY,
    policy=PRESETS,
    outcome=("satisfied", "failed"),
)
REPAIRS = _counter(
    "repair_rounds",
    "Rounds of reopening a text that failed its constraint, run to a verdict; of failed and cancelled requests too.",
    selector=SELECTORS,
    outcome=("recovered", "failed"),
)
AUDIT_PAIRS = _counter(
    "audit_pairs",
    "Shadow audits by verdict: the handoff's before the full continuation's.",
    family=_FAMILY,
    outcome=PAIR_OUTCOMES,
)
AUDIT_DROPPED = _counter("audit_dropped", "Shadow audits that were due and not run.")
AUDITS_WAITING = _gauge("audits_waiting", "Shadow audits in the database that are queued or running.")
AUDIT_GAP = _gauge(
    "audit_gap",
    "Success of handed-off samples less that of full CFG from the same states, and the ends of its anytime-valid "
    "interval, since the last suspension or recovery; of each source's most audited gate.",
    family=FAMILIES,
    source=watched_sources(),
    bound=("estimate", "low", "high"),
)
ROLLOUTS = _counter("committor_rollouts", "Finished rollouts of committor measurements.")
JOBS = _gauge("committor_jobs", "Unfinished committor jobs in the database.", status=("queued", "running"))
REQUESTS = _counter(
    "requests", "Answered requests.", route=_ROUTES, policy=PRESETS, finish_reason=get_args(FinishReason)
)
RUNNING = _gauge("requests_running", "Requests that the engine has begun.")
WAITING = _gauge("requests_waiting", "Admitted requests that it has not.")
QUEUE_SECONDS = _histogram("request_queue_seconds", "From admission to the first step.", _SECONDS)
REQUEST_SECONDS = _histogram("request_duration_seconds", "From admission to the end.", _SECONDS)
FIRST_COMMIT = _histogram("time_to_first_commit_seconds", "From admission to a first token.", _SECONDS)
REJECTIONS = _counter("admission_rejections", "Requests that were not admitted.", reason=_REJECTIONS)
CONNECTIONS = _gauge(
    "connections", "Open connections; waiting ones have sent no whole request.", state=("waiting", "active")
)
CONNECTIONS_LIMIT = _gauge("connections_limit", "Connections that may be open.")
CONNECTIONS_REFUSED = _counter(
    "connections_refused",
    "Connections ended early: no_room (all have a request), dropped (the longest waiting one made room), unread (its "
    "client does not read), or the code of the answer.",
    reason=get_args(Refusal),
)
BUILD = _gauge("build_info", "Versions; always 1.", version=ANY, model=ANY, gate_version=ANY)

METRICS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of them."""


def family_label(family: str | None) -> str:
    """The family, or `other`: a label never holds what a client chose."""
    return family if family in FAMILIES else OTHER
