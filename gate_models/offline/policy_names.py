"""Short names of policies on the command line: `full_cfg`, `handoff:0.3:k8`, `drained:0.5:k4:guidance_boost`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from decoding import policy as policies
from decoding.gating import BuiltinGates, Gate, Regime
from decoding.order import GUIDED_ORDERS
from decoding.policy import DecodingPolicy, PolicyError, resolve_policy

HELP = (
    "comma-separated: base, full_cfg, handoff:FRACTION, parallel_tail:FRACTION (8 wide) or drained:THRESHOLD, each "
    "with optional :kN (tail width; guided width for full_cfg), :aX (adaptive tail threshold), :rprefixN or :rdualN "
    "(the tail reuses keys and values, refreshed every N steps), :wX (guidance scale), :ORDER (random, "
    "guidance_boost, ...)"
)


_NUMBERED: Final = {"handoff": "handoff", "parallel_tail": "parallel_tail", "drained": "handoff"}
"""Names that take a number, and the presets that they stand for."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with the gate that it names."""

    name: str
    policy: DecodingPolicy
    gate: Gate


def parse_policy(name: str, guidance_scale: float | None = None) -> NamedPolicy:
    """The policy that `name` stands for. Raises `ValueError` that says what is wrong with it."""
    head, *options = name.split(":")
    given: dict[str, Any] = {}
    preset, setting = head, policies.Gate("never")
    try:
        if head in _NUMBERED:
            value = _number(name, head, options)
            preset = _NUMBERED[head]
            setting = (
                policies.Gate("drained", threshold=value)
                if head == "drained"
                else policies.Gate("fraction", fraction=value)
            )
            given["gate"] = setting
        if guidance_scale is not None and preset != "base":
            given["guidance_scale"] = guidance_scale
        for option in options:
            given |= _option(option, preset)
        policy = resolve_policy(preset, given)
    except PolicyError as error:
        raise ValueError(f"policy {name!r}: {error.param} {error}") from None
    except ValueError as error:
        raise ValueError(
            str(error) if name in str(error) else f"policy {name!r}: {error}; policies are {HELP}"
        ) from None
    return NamedPolicy(name, policy, _gate(setting))


def at_weight(name: str, weight: float) -> NamedPolicy:
    """The policy of `name` at another guidance scale. At 0, and where it never guides: the base decoder with its tail.

    Names of base decoders are made from what they do, so that equal ones have one name.
    """
    own = parse_policy(name).policy
    if weight != 0.0 and own.preset != "base":
        kept = [part for part in name.split(":") if not re.fullmatch(r"w\d+(\.\d+)?", part)]
        return parse_policy(":".join([*kept, f"w{weight:g}"]))
    parts = ["base"]
    if own.tail_width != 1:
        parts.append(f"k{own.tail_width}")
    if own.tail_threshold is not None:
        parts.append("a" + f"{own.tail_threshold:.12f}".rstrip("0").rstrip("."))
    if own.tail_reuse is not None:
        parts.append(f"r{own.tail_reuse}{own.tail_refresh}")
    if own.order == "random":  # the one named order that base steps follow too
        parts.append(own.order)
    return parse_policy(":".join(parts))


def _number(name: str, head: str, options: list[str]) -> float:
    try:
        return float(options.pop(0))
    except (IndexError, ValueError):
        raise ValueError(f"policy {name!r} needs a number after its name, such as {head}:0.3") from None


def _option(option: str, preset: str) -> dict[str, Any]:
    if option in {"random", *GUIDED_ORDERS}:
        return {"order": option}
    if reuse := re.fullmatch(r"r([a-z]+)(\d+)", option):
        return {"tail_reuse": reuse[1], "tail_refresh": int(reuse[2])}
    match = re.fullmatch(r"([kaw])(\d+(?:\.\d+)?)", option)
    if match is None:
        raise ValueError(f"option {option!r} is unknown")
    kind, number = match[1], float(match[2])
    if kind == "k":
        return {"guided_width" if preset == "full_cfg" else "tail_width": int(number)}
    return {"tail_threshold": number} if kind == "a" else {"guidance_scale": number}


def _gate(setting: policies.Gate) -> Gate:
    regime = Regime("", None, 2.0, 1, 1, 1, 1.0, None, "probability", "confidence", "as_is")
    gate = BuiltinGates({}).resolve(setting, regime).gate
    if gate is None:
        raise ValueError(f"gate source {setting.source!r} cannot be used offline")
    return gate
