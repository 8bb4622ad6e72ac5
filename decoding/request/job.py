"""A job: everything that determines one decoded text, as a value. Equal jobs give equal texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from decoding.constraints.base.constraint import Constraint
from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import Gate, Regime
from decoding.models.protocol import TextCodec
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.records.ledger import Purpose
from decoding.records.trace import Phase
from decoding.request.template import TemplateCanvas
from decoding.sampling.block_schedule import CONSTANT, Place, planned_rows
from decoding.sampling.commit_order import CONFIDENCE_KINDS, needs_noise
from decoding.sampling.noise import NoiseKey
from decoding.sampling.stability import NO_TAIL, TailState

TEMPLATE: Final = "template"
"""How end-of-text is handled in blanks, as a regime names it: none is written."""
RecordLevel = Literal["commits", "gate", "stats", "fill"]
"""What a trace keeps of each step: commits alone; all that learned gates read, while guided; summaries; those and the
argmax fill.
"""
Priority = Literal["interactive", "background"]


def record_for(gates: Iterable[Gate], asked: RecordLevel) -> RecordLevel:
    """What a trace keeps where `asked` is wanted of it and `gates` read it."""
    if not any(gate.needs_stats for gate in gates):
        return asked
    return "gate" if asked == "commits" else "fill"


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
class Anchor:
    """A state of a run, from which it goes on another way."""

    canvas: tuple[int, ...]
    """Token ids [L], MASK where undecided."""
    step: int
    """The step that comes next."""
    place: Place | None = None
    """Where the schedule stood (`Trace.place`); None: the step alone says it."""
    tail: TailState = NO_TAIL
    """What a tail had carried so far (`Trace.tail`); nothing where the tail begins here."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to decode a canvas from the start, with its own repair."""

    policy: DecodingPolicy
    gate: Gate = field(default_factory=NeverGate)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that determines a canvas; equal jobs give equal canvases.

    `prompt_ids` is the templated prompt. `start` [gen_length] holds ids with MASK where undecided (None: `empty`),
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
    template: TemplateCanvas | None = None
    """Fixed texts around blanks; the blanks alone are decoded. None: the whole canvas is."""
    family: str | None = None
    constraint: dict[str, object] | None = None
    negative_ids: tuple[int, ...] | None = None
    """What the unconditional branch reads in place of the masked prompt (a templated negative prompt)."""
    purpose: Purpose = "generate"
    priority: Priority = "interactive"
    record: RecordLevel = "commits"
    start: tuple[int, ...] | None = None
    start_step: int = 0
    start_place: Place | None = None
    """Where the schedule stood (`Trace.place`); None: derived from `start_step`, which wide guided phases in blocks and
    end-of-text fills make ambiguous.
    """
    start_tail: TailState = NO_TAIL
    """What the tail had carried so far (`Trace.tail`), where `start` is in the midst of one."""
    fill_step: int | None = None
    """The step that fills every position that is still masked with its argmax, and is the last (truncated rollouts)."""
    predicate: Constraint | None = None
    """What the finished text must satisfy, where `policy.repair` or `attempts` ask for a verdict."""
    attempts: tuple[Attempt, ...] = ()
    """What is tried in turn until a text satisfies the predicate; empty: the job's own policy, once."""
    handed_off: bool = False
    deadline: float | None = None
    """`time.monotonic()` value after which the request fails."""

    @property
    def open_length(self) -> int:
        """Positions that are decoded: the canvas, or the blanks of a template."""
        return self.gen_length if self.template is None else len(self.template.open)

    def empty(self, mask_id: int) -> tuple[int, ...]:
        """The canvas [gen_length] before anything is decided."""
        return (mask_id,) * self.gen_length if self.template is None else self.template.ids

    def text(self, codec: TextCodec, content: Sequence[int], without: int | None = None) -> str:
        """The text of a finished canvas, whose ids up to the first end-of-text are `content`.

        The token at position `without` is left out.
        """
        if self.template is not None:
            return self.template.text(codec, content, without)
        return codec.decode([token for at, token in enumerate(content) if at != without])

    @property
    def full_cfg_equivalent(self) -> int:
        """Rows of full CFG with T serial steps: 2T."""
        return 2 * self.steps

    @property
    def first_pass_rows(self) -> int:
        """Upper estimate of the rows that finish the canvas for the first time."""
        mending = self.policy.tail_mend or 0
        if self.start is None and self.fill_step is None:
            return max(1, self.planned_rows() + mending)
        end = self.steps if self.fill_step is None else self.fill_step + 1
        return max(1, (1 if self.starts_base else 2) * (end - self.start_step) + mending)

    @property
    def judged(self) -> bool:
        """Whether a finished text is judged, and gone on from where it fails."""
        return self.policy.repair is not None or bool(self.attempts)

    @property
    def attempt_count(self) -> int:
        return max(1, len(self.attempts))

    def attempt(self, index: int) -> Job:
        """The job of one attempt. The first draws this job's own noise, further ones noise of their own."""
        if not self.attempts:
            return self
        chosen = self.attempts[index]
        noise = replace(self.noise, arm=f"{self.noise.arm}+{index}") if index else self.noise
        return replace(self, policy=chosen.policy, gate=chosen.gate, noise=noise, attempts=())

    @property
    def starts_base(self) -> bool:
        return self.handed_off or self.policy.guidance_scale == 0.0

    @property
    def draws(self) -> bool:
        """Whether noise has a say in what is decoded."""
        warm = max(self.sampling.temperature, self.policy.tail_temperature or 0.0) > 0.0
        return warm or needs_noise(self.policy.order) or CONFIDENCE_KINDS[self.sampling.confidence].needs_noise

    def temperature(self, phase: Phase) -> float:
        """The temperature of a step."""
        tail = None if phase == "guided" else self.policy.tail_temperature
        return self.sampling.temperature if tail is None else tail

    def planned_rows(self, handoff_step: int | None = None) -> int:
        """Rows of a run from an empty canvas that hands off at `handoff_step`.

        None: where the gate plans to, at the latest never. A pace that the tokens set (boosted steps, an adaptive tail)
        is counted at its slowest, the schedule's; end-of-text never ends a run early. Mending comes on top.
        """
        if handoff_step is None:
            planned = self.gate.planned_step(self.steps)
            handoff_step = 0 if self.starts_base else self.steps if planned is None else planned
        policy = self.policy
        guided = policy.guided_width if policy.boost_threshold is None else 1
        tail = 1 if policy.paced_by_tokens else policy.tail_width
        shape = self.open_length, self.steps, self.block_length
        return planned_rows(*shape, handoff_step, guided, tail, policy.tail_schedule if tail > 1 else CONSTANT)


def regime_of(job: Job, model_hash: str) -> Regime:
    """The regime that a job asks a gate for. With a negative prompt it is no family's: none was audited so."""
    policy = job.policy
    return Regime(
        model_hash=model_hash,
        family=None if job.negative_ids is not None else job.family,
        guidance_scale=policy.guidance_scale,
        steps=job.steps,
        gen_length=job.open_length,
        tail_width=policy.tail_width,
        temperature=job.sampling.temperature,
        block_length=None if job.block_length == job.gen_length else job.block_length,
        confidence=job.sampling.confidence,
        order=policy.order,
        eos=job.sampling.eos if job.template is None else TEMPLATE,
        tail_reuse=None if policy.tail_reuse is None else f"{policy.tail_reuse}:{policy.tail_refresh}",
        guided_width=policy.guided_width,
        boost_threshold=policy.boost_threshold,
        plausibility=policy.plausibility,
        tail_threshold=policy.tail_threshold,
        tail_rule=policy.tail_rule,
        tail_schedule=policy.tail_schedule,
        tail_mend=policy.tail_mend,
        tail_temperature=policy.tail_temperature,
        top_p=job.sampling.top_p,
    )
