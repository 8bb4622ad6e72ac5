"""What a request asks of the decoder: guidance x gate x tail x repair x budget, freely combined.

These dataclasses are the one home of the policy's fields; the HTTP schema and the SDK are generated from them. They are
validated when built; `PolicyError.param` names the field. Presets are shorthands for combinations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, get_args

from decoding.models.protocol import ReuseMode
from decoding.policy.checks import PolicyError, one_of, whole, within
from decoding.policy.repair import REOPEN, Repair
from decoding.sampling.commit_order import GUIDED_ORDERS

GateSource = Literal["fraction", "constant", "recorded", "raw", "policy", "value", "risk", "drained", "never"]
OnFallback = Literal["full_cfg", "base", "reject"]
Preset = Literal["base", "full_cfg", "handoff", "parallel_tail", "reopen_repair", "auto"]

GATE_SOURCES: Final = get_args(GateSource)
PRESETS: Final = get_args(Preset)
ON_FALLBACK: Final = get_args(OnFallback)
REUSE_MODES: Final = get_args(ReuseMode)
TAIL_REFRESH: Final = 8
_NEEDS_REUSE: Final = "needs tail_reuse: it says how often what is reused is computed again"
MAX_GUIDANCE_SCALE: Final = 20.0


def step_at(fraction: float, steps: int) -> int:
    """The step at a fraction of the run: floor(f T + 1/2)."""
    return math.floor(fraction * steps + 0.5)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What picks the handoff step; each source takes the fields that `GATE_FIELDS` lists, no others."""

    source: GateSource = "policy"
    fraction: float | None = None
    """Handoff after this fraction of the steps, in [0, 1] (source `fraction`)."""
    margin: float | None = None
    """Success that may be lost, in (0, 1) (source `risk`; source `drained`: in place of a threshold, the largest one
    that is certified to lose less with 95 % confidence).
    """
    confidence: float | None = None
    """Confidence of that promise, in (0, 1) (source `risk`)."""
    row_price: float | None = None
    """Success that one forward evaluation is worth, in [0, 1] (source `value`)."""
    threshold: float | None = None
    """Total variation below which guidance counts as drained, in (0, 1] (source `drained`). Left out: the family's
    calibrated one where this setting was measured, else 0.5.
    """
    recheck: int | None = None
    """Guidance comes back for one step after every so many base steps, and stays where it is not drained (source
    `drained`); None: never.
    """

    def __post_init__(self) -> None:
        one_of("gate.source", self.source, GATE_SOURCES)
        allowed = GATE_FIELDS[self.source]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "source" or value is None:
                continue
            if item.name not in allowed:
                takes = ", ".join(allowed) or "no settings"
                raise PolicyError(
                    f"gate.{item.name}", f"is not used by gate source '{self.source}' (it takes {takes}); leave it out"
                )
            if item.name == "recheck":
                whole("gate.recheck", value)
                continue
            within(f"gate.{item.name}", value, 0.0, 1.0)
            if hint := _NEVER.get((item.name, value)):
                raise PolicyError(f"gate.{item.name}", f"must not be {value:g}: {hint}")
        if self.source == "drained" and self.margin is not None:
            for name in ("threshold", "recheck"):
                if getattr(self, name) is not None:
                    raise PolicyError(
                        f"gate.{name}",
                        "cannot be combined with gate.margin, which chooses the threshold; leave one out",
                    )
        if self.source == "fraction" and self.fraction is None:
            raise PolicyError("gate.fraction", "is required by gate source 'fraction'; give one such as 0.3")


GATE_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fraction": ("fraction",),
    "constant": (),
    "recorded": (),
    "raw": (),
    "policy": (),
    "value": ("row_price",),
    "risk": ("margin", "confidence"),
    "drained": ("threshold", "margin", "recheck"),
    "never": (),
}
_NEVER: Final[Mapping[tuple[str, float], str]] = {
    ("margin", 0): "no measurement rules out every loss; give one such as 0.01, or gate source 'never' to lose nothing",
    ("margin", 1): "it would allow every loss; give one such as 0.03, or gate source 'fraction' to choose the step",
    ("confidence", 0): "it would promise nothing; give one such as 0.95",
    ("confidence", 1): "no measurement is certain; give one such as 0.95",
    ("threshold", 0): "no guidance is below it, none would end; for guidance throughout use gate source 'never'",
}
"""Ends of [0, 1] that mean nothing for a setting, and what to do instead."""
GATE_DEFAULTS: Final[Mapping[str, float]] = {"margin": 0.03, "confidence": 0.95, "row_price": 0.002, "threshold": 0.5}


def gate_defaults(source: GateSource) -> dict[str, float]:
    """What a gate source takes for the settings that a request leaves open; `drained` asks for no margin by itself."""
    unasked = ("margin",) if source == "drained" else ()
    return {name: GATE_DEFAULTS[name] for name in GATE_FIELDS[source] if name in GATE_DEFAULTS and name not in unasked}


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
    boost_threshold: float | None = None
    """Guidance first: a guided step also commits every token whose probability guidance raises by this much, each
    token once, at most `guided_width`.
    """
    gate: GateSettings = field(default_factory=GateSettings)
    tail_width: int = 1
    """Positions committed per base step after handoff; 1 follows the schedule."""
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
    repair: Repair | None = None
    """What is done with a finished text that fails its constraint; None: nothing."""
    budget_rows: int | None = None
    """Forward evaluations that repair rounds and further attempts may bring a sample to; none begins that could exceed
    it.
    """

    def __post_init__(self) -> None:
        one_of("preset", self.preset, PRESETS)
        within("guidance_scale", self.guidance_scale, 0.0, MAX_GUIDANCE_SCALE)
        one_of("order", self.order, ("confidence", "random", *GUIDED_ORDERS))
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
            if self.guided_width == 1 or self.order not in GUIDED_ORDERS:
                raise PolicyError(
                    "boost_threshold",
                    f"needs guided_width > 1 and one of the orders {', '.join(GUIDED_ORDERS)}",
                )
        if self.guidance_scale == 0.0 and self.guided_width != 1:
            raise PolicyError("guided_width", "is not used without guidance; use tail_width")
        if self.guidance_scale == 0.0 and self.order in GUIDED_ORDERS:
            raise PolicyError("order", f"'{self.order}' needs guidance_scale > 0")

    def _check_tail(self) -> None:
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
        if self.tail_reuse is not None:
            one_of("tail_reuse", self.tail_reuse, REUSE_MODES)
            if self.never_base:
                raise PolicyError(
                    "tail_reuse", "is only used after a handoff; this policy never hands off, leave it out"
                )
            if self.gate.recheck is not None:
                raise PolicyError(
                    "tail_reuse", "cannot be combined with gate.recheck (guidance may come back); leave one out"
                )
        elif self.tail_refresh != TAIL_REFRESH:
            raise PolicyError("tail_refresh", _NEEDS_REUSE)

    @property
    def never_base(self) -> bool:
        """Whether no step can be a base step."""
        return self.guidance_scale > 0.0 and self.gate.source == "never"

    def check_canvas(self, gen_length: int) -> None:
        """Raise where a width exceeds the canvas."""
        for name in ("guided_width", "tail_width"):
            if getattr(self, name) > gen_length:
                raise PolicyError(name, f"must not exceed gen_length ({gen_length})")
        if self.repair is not None and self.repair.reopen > max(gen_length, REOPEN):
            raise PolicyError("repair.reopen", f"must not exceed gen_length ({gen_length})")


_PRESET_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "base": {"guidance_scale": 0.0, "gate": GateSettings("never")},
    "full_cfg": {"gate": GateSettings("never")},
    "handoff": {"tail_width": 1},
    "parallel_tail": {"tail_width": 8},
    "reopen_repair": {"repair": Repair()},
    "auto": {},
}
_UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "base": ("guided_width", "boost_threshold", "gate", "on_fallback"),
    "full_cfg": ("gate", "on_fallback", "tail_width", "tail_threshold", "tail_reuse", "tail_refresh"),
    "auto": (
        *("guided_width", "order", "boost_threshold", "gate", "tail_width", "tail_threshold", "tail_reuse"),
        *("tail_refresh", "on_fallback", "repair"),
    ),
}


def plainly_guided(policy: DecodingPolicy) -> DecodingPolicy:
    """`policy` guided as full CFG is, in confidence order: what a fallback to full CFG runs.

    A guidance-first order that never ends is another decoder, and loses success on families that do not drain.
    """
    if policy.order not in GUIDED_ORDERS:
        return policy
    width = policy.guided_width if policy.boost_threshold is None else 1
    return replace(policy, order="confidence", boost_threshold=None, guided_width=width)


def resolve_policy(preset: str, given: Mapping[str, Any], *, gen_length: int | None = None) -> DecodingPolicy:
    """The policy of `preset` with the fields in `given` set over its defaults.

    A field that the preset does not use is refused (`PolicyError`), not ignored. `parallel_tail`'s default width of 8
    is cut to the canvas where `gen_length` is smaller.
    """
    one_of("preset", preset, PRESETS)
    for name in _UNUSED.get(preset, ()):
        if name in given:
            raise PolicyError(name, f"is not used by preset '{preset}'; leave it out")
    if "tail_refresh" in given and given.get("tail_reuse") is None:
        raise PolicyError("tail_refresh", _NEEDS_REUSE)
    values = {**_PRESET_DEFAULTS[preset], **given}
    if gen_length is not None and "tail_width" not in given:
        values["tail_width"] = min(values.get("tail_width", 1), gen_length)
    policy = DecodingPolicy(preset=preset, **values)  # type: ignore[arg-type]
    if gen_length is not None:
        policy.check_canvas(gen_length)
    return policy
