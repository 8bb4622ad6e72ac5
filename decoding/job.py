"""What a canvas is decoded from: a value that determines its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from decoding.gating import Gate, NeverGate, Regime
from decoding.ledger import Purpose
from decoding.noise import NoiseKey
from decoding.policy import DecodingPolicy
from decoding.schedule import Place, planned_rows

Record = Literal["commits", "stats", "fill"]
Priority = Literal["interactive", "background"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn and ends of text handled; the defaults are a plain census run."""

    temperature: float = 1.0
    top_p: float = 1.0
    confidence: str = "probability"
    eos_fill: bool = False
    """Fill everything after a committed end-of-text at once."""
    suppress_eos: bool = False
    """Never emit end-of-text."""
    defer_eos: bool = False
    """Commit end-of-text last: its confidence ranks below every other token's."""

    @property
    def eos(self) -> str:
        """The regime's name of the options that are on."""
        on = [name for name in ("eos_fill", "suppress_eos", "defer_eos") if getattr(self, name)]
        return "+".join(on) or "as_is"


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that determines a canvas; equal jobs give equal canvases.

    `prompt_ids` is the templated prompt. `start` [gen_length] holds ids with MASK where undecided (None: all MASK),
    decoded from step `start_step` on. `handed_off` starts in the base phase. Validated where it enters the engine.
    """

    prompt_ids: tuple[int, ...]
    gen_length: int
    steps: int
    policy: DecodingPolicy
    noise: NoiseKey
    gate: Gate = field(default_factory=NeverGate)
    sampling: Sampling = field(default_factory=Sampling)
    block_length: int | None = None
    family: str | None = None
    constraint: dict[str, object] | None = None
    purpose: Purpose = "generate"
    priority: Priority = "interactive"
    record: Record = "commits"
    start: tuple[int, ...] | None = None
    start_step: int = 0
    start_place: Place | None = None
    """Where the schedule stood (`Trace.place`); None: derived from `start_step`, which wide guided phases in blocks and
    end-of-text fills make ambiguous.
    """
    handed_off: bool = False
    deadline: float | None = None
    """`time.monotonic()` value after which the request fails."""

    @property
    def full_cfg_equivalent(self) -> int:
        """Rows of full CFG with T serial steps: 2T."""
        return 2 * self.steps

    @property
    def estimated_rows(self) -> int:
        """Upper estimate of the rows still to run, for admission."""
        if self.start is None:
            return max(1, self.planned_rows())
        return max(1, (1 if self.starts_base else 2) * (self.steps - self.start_step))

    @property
    def starts_base(self) -> bool:
        return self.handed_off or self.policy.guidance_scale == 0.0

    def planned_rows(self, handoff_step: int | None = None) -> int:
        """Rows of a run from an empty canvas that hands off at `handoff_step`.

        None: where the gate plans to, at the latest never. An adaptive tail is counted as if it always committed
        `tail_width`; end-of-text never ends a run early.
        """
        if handoff_step is None:
            planned = self.gate.planned_step(self.steps)
            handoff_step = 0 if self.starts_base else self.steps if planned is None else planned
        widths = self.policy.guided_width, self.policy.tail_width
        return planned_rows(self.gen_length, self.steps, self.block_length, handoff_step, *widths)


def regime_of(job: Job, model_hash: str) -> Regime:
    """The regime that a job asks a gate for."""
    policy = job.policy
    return Regime(
        model_hash=model_hash,
        family=job.family,
        guidance_scale=policy.guidance_scale,
        steps=job.steps,
        gen_length=job.gen_length,
        tail_width=policy.tail_width,
        temperature=job.sampling.temperature,
        block_length=job.block_length,
        confidence=job.sampling.confidence,
        order=policy.order,
        eos=job.sampling.eos,
        tail_reuse=None if policy.tail_reuse is None else f"{policy.tail_reuse}:{policy.tail_refresh}",
    )
