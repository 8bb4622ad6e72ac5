"""The gate part of a policy: what ends guidance, and the settings that each source of that decision takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from decoding.policy.checks import PolicyError, one_of, whole, within

GateSource = Literal["fraction", "constant", "recorded", "raw", "policy", "value", "risk", "drained", "never"]
GATE_SOURCES: Final = get_args(GateSource)


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
    calibrated one where this setting was measured, else the model's pooled one; 0.5 with re-checks, and from half of
    the steps on for a model that was not measured.
    """
    earliest: float | None = None
    """No handoff before this fraction of the steps, in [0, 1] (source `drained`, with a threshold)."""
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
            for name in ("threshold", "earliest", "recheck"):
                if getattr(self, name) is not None:
                    raise PolicyError(
                        f"gate.{name}",
                        "cannot be combined with gate.margin, which chooses the threshold; leave one out",
                    )
        if self.earliest is not None and self.threshold is None:
            raise PolicyError(
                "gate.earliest", "needs gate.threshold: what was measured has its own; give one such as 0.5"
            )
        if self.source == "fraction" and self.fraction is None:
            raise PolicyError("gate.fraction", "is required by gate source 'fraction'; give one such as 0.3")

    def asked_or_default(self, name: str) -> float:
        """The setting `name` of this request, or its default (`GATE_DEFAULTS`)."""
        given: float | None = getattr(self, name)
        return GATE_DEFAULTS[name] if given is None else given


GATE_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fraction": ("fraction",),
    "constant": (),
    "recorded": (),
    "raw": (),
    "policy": (),
    "value": ("row_price",),
    "risk": ("margin", "confidence"),
    "drained": ("threshold", "margin", "earliest", "recheck"),
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
