"""The setting (model, steps, scale, ...) that a gate was trained and audited in; it serves no other (contract 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from decoding.gates.protocol import Regime

RANGED: Final = ("guidance_scale", "steps", "gen_length")
"""Fields of `Regime` that are audited over a range."""
_NAMED: Final = frozenset({*RANGED, "model_hash", "family", "tail_width"})
"""Fields of `Regime` that an audited regime names itself; the others are in `fixed`."""


@dataclass(frozen=True, slots=True)
class AuditedRegime:
    """Ranges (lowest, highest) where a range was audited, values elsewhere."""

    model_hash: str
    family: str
    guidance_scale: tuple[float, float]
    steps: tuple[int, int]
    gen_length: tuple[int, int]
    tail_widths: tuple[int, ...]
    fixed: Mapping[str, Any]
    """Every other field of `Regime`, at its only audited value."""

    @staticmethod
    def at(regime: Regime, tail_widths: tuple[int, ...]) -> AuditedRegime:
        """`regime` alone, at several tail widths. Raises `ValueError` for a regime without family."""
        if regime.family is None:
            raise ValueError("a gate belongs to a family, and this regime has none")
        fixed = {name: value for name, value in asdict(regime).items() if name not in _NAMED}
        scale, steps, length = ((getattr(regime, name),) * 2 for name in RANGED)
        return AuditedRegime(regime.model_hash, regime.family, scale, steps, length, tail_widths, fixed)

    def differences(self, asked: Regime) -> list[str]:
        """What of `asked` was not audited, in words ("steps 32 (audited: 16)"); empty where it is inside."""
        different = []
        for name in RANGED:
            low, high = getattr(self, name)
            value = getattr(asked, name)
            if not low <= value <= high:
                different.append(f"{name} {value:g} (audited: {low:g}{'' if low == high else f' to {high:g}'})")
        if asked.tail_width not in self.tail_widths:
            different.append(f"tail_width {asked.tail_width} (audited: {', '.join(map(str, self.tail_widths))})")
        different += [
            f"{name} {getattr(asked, name)} (audited: {getattr(self, name)})"
            for name in ("model_hash", "family")
            if getattr(asked, name) != getattr(self, name)
        ]
        defaults = {item.name: item.default for item in fields(Regime)}
        for name in defaults.keys() - _NAMED:
            audited = self.fixed.get(name, defaults[name])  # a field that is newer than the gate had its default then
            if getattr(asked, name) != audited:
                different.append(f"{name} {_word(getattr(asked, name))} (audited: {_word(audited)})")
        return sorted(different)

    def nearest(self, asked: Regime) -> dict[str, Any]:
        """The audited setting nearest to `asked`, as fields of `Regime`."""
        ranged = {
            name: min(max(getattr(asked, name), getattr(self, name)[0]), getattr(self, name)[1]) for name in RANGED
        }
        return self._fields(ranged, min(self.tail_widths, key=lambda width: abs(width - asked.tail_width)))

    def lowest(self, tail_width: int) -> Regime:
        """The audited setting at the lower end of every range."""
        return Regime(**self._fields({name: getattr(self, name)[0] for name in RANGED}, tail_width))

    def at_width(self, tail_width: int) -> dict[str, Any]:
        """The audited setting at one tail width, as fields of `Regime`; a range is given as [low, high]."""
        ranges = {name: getattr(self, name) for name in RANGED}
        ranged = {name: low if low == high else [low, high] for name, (low, high) in ranges.items()}
        return self._fields(ranged, tail_width)

    def _fields(self, ranged: Mapping[str, Any], tail_width: int) -> dict[str, Any]:
        """All fields of `Regime` in their order; one that is newer than the gate has its default."""
        named = {"model_hash": self.model_hash, "family": self.family, "tail_width": tail_width}
        known = {**ranged, **named, **self.fixed}
        return {item.name: known.get(item.name, item.default) for item in fields(Regime)}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        out = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in out.items()}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> AuditedRegime:
        """Raises `KeyError` or `TypeError` where a field is missing or of another type."""
        ranges = {name: tuple(content[name]) for name in (*RANGED, "tail_widths")}
        return AuditedRegime(
            model_hash=content["model_hash"], family=content["family"], fixed=dict(content["fixed"]), **ranges
        )


def _word(value: Any) -> str:
    return "none" if value is None else str(value)
