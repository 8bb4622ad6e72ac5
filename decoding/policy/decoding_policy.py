"""What a request asks of the decoder: guidance, what ends it, the steps after it, repair and a budget.

These dataclasses, with those of `gate` and `repair`, are the one home of the policy's fields; the HTTP schema and the
SDK are generated from them. They are checked when built; `PolicyError.param` names the field at fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from decoding.models.protocol import ReuseMode
from decoding.policy.checks import PolicyError, one_of, whole, within
from decoding.policy.gate import GateSettings
from decoding.policy.repair import REOPEN, Repair
from decoding.sampling.block_schedule import CONSTANT, TAIL_SCHEDULES, TailSchedule
from decoding.sampling.commit_order import guidance_first_orders, guided_orders, order_names
from decoding.sampling.tail_rule import ATTENDING, TOP_K, tail_rules

OnFallback = Literal["drained", "full_cfg", "base", "reject"]
Preset = Literal["base", "full_cfg", "handoff", "parallel_tail", "reopen_repair", "auto"]

PRESETS: Final = get_args(Preset)
ON_FALLBACK: Final = get_args(OnFallback)
REUSE_MODES: Final = get_args(ReuseMode)
TAIL_REFRESH: Final = 8
NEEDS_REUSE: Final = "needs tail_reuse: it says how often what is reused is computed again"
MAX_GUIDANCE_SCALE: Final = 20.0
MAX_TEMPERATURE: Final = 5.0
MAX_MEND: Final = 64


@dataclass(frozen=True, slots=True)
class DecodingPolicy:
    """A resolved policy. `guidance_scale` 0 is the base decoder whatever the gate."""

    preset: Preset
    guidance_scale: float = 2.0
    """w in c + w(c - u)."""
    guided_width: int = 1
    """Positions committed per guided step; 1 follows the schedule."""
    order: str = "confidence"
    """Commit order while guided; afterwards confidence order, but for 'random', which stays."""
    plausibility: float | None = None
    """A guided step takes only tokens whose conditional probability is at least this share of the best one's; None: any
    token.
    """
    boost_threshold: float | None = None
    """Guidance first: a guided step also commits every token whose probability guidance raises by this much, each
    token once, at most `guided_width`.
    """
    gate: GateSettings = field(default_factory=GateSettings)
    tail_width: int = 1
    """Positions committed per base step after handoff; 1 follows the schedule."""
    tail_rule: str = TOP_K
    """Which positions of a wide base step are committed together: the best (`top_k`), or only some that go well
    together.
    """
    tail_schedule: TailSchedule = CONSTANT
    """How many positions a wide base step commits: `tail_width` each, or as many in all with few at first and many at
    the end (`growing`).
    """
    tail_mend: int | None = None
    """Passes over a finished wide tail, a row each: every so many of its tokens are looked at again together, and those
    that have become unlikely or repeat a neighbour are drawn anew; None: no pass.
    """
    tail_temperature: float | None = None
    """Temperature of base steps after a handoff; None: the request's."""
    tail_threshold: float | None = None
    """Adaptive tail: commit every token of at least this probability, at least what the schedule needs to end in time
    and at most `tail_width`.
    """
    tail_reuse: ReuseMode | None = None
    """Approximate, faster base steps: keep keys and values, run only from the active block on ('prefix') or it alone
    ('dual').
    """
    tail_refresh: int = TAIL_REFRESH
    """With tail_reuse: run everything again every so many base steps (1: always, exact)."""
    on_fallback: OnFallback = "full_cfg"
    """What a request gets that no gate serves: `drained` at the threshold that was measured for the model over all
    settings, a cautious one where none was (the default of presets that have a gate), guidance to the end, none, or a
    422.
    """
    repair: Repair | None = None
    """What is done with a finished text that fails its constraint; None: nothing."""
    budget_rows: int | None = None
    """Forward evaluations that repair rounds and further attempts may bring a sample to; none begins that could exceed
    it.
    """

    def __post_init__(self) -> None:
        one_of("preset", self.preset, PRESETS)
        within("guidance_scale", self.guidance_scale, 0.0, MAX_GUIDANCE_SCALE)
        one_of("order", self.order, order_names())
        one_of("on_fallback", self.on_fallback, ON_FALLBACK)
        for name in ("guided_width", "tail_width", "tail_refresh"):
            whole(name, getattr(self, name))
        if self.preset == "base" and self.guidance_scale != 0.0:
            raise PolicyError("guidance_scale", "must be 0 (or left out) with preset 'base'")
        if self.preset == "full_cfg" and self.gate.source != "never":
            raise PolicyError("gate", "is not used by preset 'full_cfg'; use preset 'handoff'")
        if self.budget_rows is not None:
            whole("budget_rows", self.budget_rows)
            if self.repair is None and self.preset != "auto":
                raise PolicyError("budget_rows", "is only used with repair or preset 'auto'; leave it out")
        self._check_guided()
        self._check_tail()

    def _check_guided(self) -> None:
        if self.boost_threshold is not None:
            within("boost_threshold", self.boost_threshold, 0.0, 1.0)
            if self.guided_width == 1 or self.order not in guidance_first_orders():
                raise PolicyError(
                    "boost_threshold",
                    f"needs guided_width > 1 and one of the orders {', '.join(guidance_first_orders())}",
                )
        if self.plausibility is not None:
            within("plausibility", self.plausibility, 0.0, 1.0)
            if self.plausibility == 0.0:
                raise PolicyError("plausibility", "must not be 0: it would allow every token; leave it out")
            if self.guidance_scale == 0.0:
                raise PolicyError("plausibility", "is not used without guidance: it limits guided steps; leave it out")
        if self.guidance_scale == 0.0 and self.guided_width != 1:
            raise PolicyError("guided_width", "is not used without guidance; use tail_width")
        if self.guidance_scale == 0.0 and self.order in guided_orders():
            raise PolicyError("order", f"'{self.order}' needs guidance_scale > 0")

    def _check_tail(self) -> None:
        one_of("tail_rule", self.tail_rule, tail_rules())
        if self.tail_rule != TOP_K and self.tail_width == 1:
            raise PolicyError("tail_rule", "needs tail_width > 1: it chooses among several positions of a step")
        one_of("tail_schedule", self.tail_schedule, TAIL_SCHEDULES)
        if self.tail_schedule != CONSTANT and self.tail_width == 1:
            raise PolicyError("tail_schedule", "needs tail_width > 1: it shares several positions a step out anew")
        if self.tail_mend is not None:
            self._check_mend(self.tail_mend)
        if self.tail_temperature is not None:
            within("tail_temperature", self.tail_temperature, 0.0, MAX_TEMPERATURE)
            if self.guidance_scale == 0.0 or self.never_base:
                raise PolicyError(
                    "tail_temperature", "is only used after a handoff, which this policy never has; use temperature"
                )
        if self.tail_threshold is not None:
            within("tail_threshold", self.tail_threshold, 0.0, 1.0)
            if self.tail_width == 1:
                raise PolicyError(
                    "tail_threshold", "needs tail_width > 1: it commits up to tail_width positions a step"
                )
        if self.never_base and self.tail_width != 1:
            raise PolicyError(
                "tail_width", "is only used after a handoff; this policy never hands off (see guided_width)"
            )
        self._check_reuse()

    def _check_reuse(self) -> None:
        if self.tail_reuse is not None:
            one_of("tail_reuse", self.tail_reuse, REUSE_MODES)
            if self.tail_rule in ATTENDING:
                raise PolicyError(
                    "tail_reuse",
                    f"cannot be combined with tail_rule '{self.tail_rule}', which needs whole rows; leave one out",
                )
            if self.never_base:
                raise PolicyError(
                    "tail_reuse", "is only used after a handoff; this policy never hands off, leave it out"
                )
            if self.gate.recheck is not None:
                raise PolicyError(
                    "tail_reuse", "cannot be combined with gate.recheck (guidance may come back); leave one out"
                )
        elif self.tail_refresh != TAIL_REFRESH:
            raise PolicyError("tail_refresh", NEEDS_REUSE)

    def _check_mend(self, passes: int) -> None:
        whole("tail_mend", passes, 2)
        if passes > MAX_MEND:
            raise PolicyError("tail_mend", f"must be at most {MAX_MEND}")
        if self.tail_width == 1:
            raise PolicyError("tail_mend", "needs tail_width > 1: it looks again at what was drawn together")
        if self.gate.recheck is not None:
            raise PolicyError(
                "tail_mend", "cannot be combined with gate.recheck (guidance may come back); leave one out"
            )

    @property
    def never_base(self) -> bool:
        """Whether no step can be a base step."""
        return self.guidance_scale > 0.0 and self.gate.source == "never"

    @property
    def paced_by_tokens(self) -> bool:
        """Whether the tokens say how many positions a wide base step commits: its rows are then known afterwards."""
        return self.tail_threshold is not None or self.tail_rule != TOP_K

    def with_tail_width(self, width: int) -> DecodingPolicy:
        """This policy with another tail width; at 1 without the settings that need a wider one."""
        if width > 1:
            return replace(self, tail_width=width)
        return replace(self, tail_width=1, tail_rule=TOP_K, tail_schedule=CONSTANT, tail_mend=None, tail_threshold=None)

    def guided_throughout(self) -> DecodingPolicy:
        """This policy as full CFG, without a tail and without repair."""
        serial = self.with_tail_width(1)
        never = GateSettings("never")
        return replace(serial, preset="full_cfg", gate=never, tail_temperature=None, repair=None, budget_rows=None)

    def check_canvas(self, gen_length: int, canvas_field: str = "gen_length") -> None:
        """Raise where a width exceeds the canvas. `canvas_field` is the caller's name of the canvas length."""
        for name in ("guided_width", "tail_width"):
            if getattr(self, name) > gen_length:
                raise PolicyError(name, f"must not exceed {canvas_field} ({gen_length})")
        if self.repair is not None and self.repair.reopen > max(gen_length, REOPEN):
            raise PolicyError("repair.reopen", f"must not exceed {canvas_field} ({gen_length})")
