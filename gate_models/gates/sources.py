"""The gate sources: every way to end guidance that a request may name, and what each of them is.

A gate source is one row of `SOURCES`. The resolver, the catalogue, the shadow audit, the metrics and the policies'
short names all read that row. `docs/structure.md` says what a new one needs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from decoding.policy.gate import GateSettings, GateSource
from gate_models.gates.calibrated.constant import shipped_cuts
from gate_models.gates.calibrated.drained import shipped_thresholds
from gate_models.gates.learned.bundle import GateBundle
from gate_models.gates.learned.gates import BundledGate, PolicyGate, RawGate, RiskGate, TrainedConstant, ValueGate

RECORDED: Final = "recorded"
"""The caller's own measured horizon."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What is true of one gate source."""

    learned: bool = False
    """Its gate is made from data of the request's family, or prompt; without that `on_fallback` decides."""
    watched: bool = False
    """The shadow audit watches it: the decision was calibrated or trained for a family, so its harm is the server's.
    `drained` only at a calibrated threshold; one of the caller's own is the caller's choice, as a `fraction` is.
    """
    needs_family: bool = False
    """Its gate is known only with the family, or the prompt."""
    family_unless: str | None = None
    """The setting that makes the family unnecessary where it is given."""
    short_name: str | None = None
    """Its name among the policies of the command line (`policies/names.py`)."""
    short_number: str | None = None
    """The setting that a number after the short name sets."""
    calibrated: Callable[[], Sequence[Any]] | None = None
    """Its settings that the package ships, one a regime. They go before a bundle's."""
    gate: type[BundledGate] | None = None
    """The class that makes its gate from a family's bundle."""

    @property
    def trained(self) -> bool:
        """Whether nothing but a family's bundle can serve it."""
        return self.gate is not None and self.calibrated is None


def _trained(short_name: str, gate: type[BundledGate], short_number: str | None = None) -> SourceFacts:
    return SourceFacts(True, True, True, short_name=short_name, short_number=short_number, gate=gate)


SOURCES: Final[Mapping[GateSource, SourceFacts]] = {
    "fraction": SourceFacts(),
    "constant": SourceFacts(True, True, True, short_name="constant", calibrated=shipped_cuts, gate=TrainedConstant),
    RECORDED: SourceFacts(learned=True, needs_family=True, short_name="recorded"),
    "raw": _trained("raw", RawGate),
    "policy": _trained("policy", PolicyGate),
    "value": _trained("value", ValueGate, "row_price"),
    "risk": _trained("risk", RiskGate, "margin"),
    "drained": SourceFacts(
        watched=True,
        needs_family=True,
        family_unless="threshold",
        short_name="calibrated",
        calibrated=shipped_thresholds,
    ),
    "never": SourceFacts(),
}


def needs_family(setting: GateSettings) -> bool:
    """Whether the gate of `setting` is known only with the family, or the prompt."""
    facts = SOURCES[setting.source]
    given = facts.family_unless is not None and getattr(setting, facts.family_unless) is not None
    return facts.needs_family and not given


def trained_sources() -> tuple[GateSource, ...]:
    """Sources that only a family's bundle can serve."""
    return tuple(name for name, facts in SOURCES.items() if facts.trained)


def watched_sources() -> tuple[GateSource, ...]:
    """Sources that the shadow audit watches."""
    return tuple(name for name, facts in SOURCES.items() if facts.watched)


def held_sources(bundle: GateBundle, width: int | None = None) -> tuple[GateSource, ...]:
    """Sources that `bundle` can serve at a tail width; None: at any of its own."""
    widths = bundle.regime.tail_widths if width is None else (width,)
    return tuple(
        name
        for name, facts in SOURCES.items()
        if facts.gate is not None and any(facts.gate.held_by(bundle, each) for each in widths)
    )
