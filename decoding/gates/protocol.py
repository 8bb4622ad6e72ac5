"""What a gate is: it sees a run so far, and decides at a checkpoint whether guidance goes on or ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from decoding.policy.gate import GateSettings
from decoding.records.trace import StepStats


@dataclass(frozen=True, slots=True)
class Regime:
    """The setting that a gate was audited in, and that a request asks for."""

    model_hash: str
    family: str | None
    guidance_scale: float
    steps: int
    gen_length: int
    tail_width: int
    temperature: float
    block_length: int | None
    confidence: str
    order: str
    eos: str
    """How end-of-text is handled: "as_is", or the options that are on joined by "+"."""
    tail_reuse: str | None = None
    """Mode and refresh of key-value reuse, such as "prefix:8"; None: exact, as every audit is."""
    guided_width: int = 1
    boost_threshold: float | None = None
    tail_threshold: float | None = None
    top_p: float = 1.0
    plausibility: float | None = None
    tail_rule: str = "top_k"
    tail_schedule: str = "constant"
    tail_mend: int | None = None
    tail_temperature: float | None = None


@dataclass(frozen=True, slots=True)
class GateView:
    """What a gate may see of a request before a step: this run's earlier steps only (the gate is causal)."""

    regime: Regime
    step: int
    prompt_length: int
    masked: int
    history: Sequence[StepStats]
    constraint: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a gate decides for one request before one step."""

    handoff: bool
    predicted_horizon: float | None = None
    """Predicted a* as a fraction of the steps."""
    handoff_fate: str | None = None
    fate_confidence: float | None = None
    statistic: float | None = None
    """What was compared (for `drained` the total variation)."""


class Gate(Protocol):
    """Decides, for all requests due in a step at once, whether guidance ends before that step."""

    @property
    def source(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def needs_stats(self) -> bool:
        """Whether `history` must carry summaries and the argmax fill (they cost time); commits are always there."""
        ...

    def checkpoints(self, steps: int) -> frozenset[int] | None:
        """Steps before which the gate wants to be asked; None: before every step."""
        ...

    def planned_step(self, steps: int) -> int | None:
        """The handoff step where it is known before the run (`steps`: never hands off); None where it is decided on the
        way.
        """
        ...

    def decide(self, views: Sequence[GateView]) -> list[Decision]: ...


Evidence = Literal["audited", "pooled", "none"]
"""What is known of a gate: measured in the very setting that it serves, over many settings together, or nothing."""


@dataclass(frozen=True, slots=True)
class MeasuredLoss:
    """What a gate was measured to lose: success of full CFG less the gate's."""

    loss: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    pairs: int
    """Pairs of texts (one guided to the end, one handed off) behind the number."""


@dataclass(frozen=True, slots=True)
class GateResolution:
    """The gate that a request gets, or why it gets none (contract 7: fallback)."""

    gate: Gate | None
    fallback_reason: str | None = None
    """Why there is no gate; beside one, why nothing is known of it."""
    nearest_regime: Mapping[str, Any] | None = None
    evidence: Evidence = "none"
    measured: MeasuredLoss | None = None
    """The loss, where one number holds for the setting (or, of a pooled gate, for all of them)."""


class GateResolver(Protocol):
    """Finds the gate for a setting and a regime; the layer above injects one that knows learned gates."""

    def resolve(self, setting: GateSettings, regime: Regime) -> GateResolution: ...
