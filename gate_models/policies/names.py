"""Short names of policies on the command line: `full_cfg`, `handoff:0.3:k8`, `drained:0.5:k4:guidance_boost`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from decoding.gates.builtin import BuiltinGates, NeverGate
from decoding.gates.protocol import Gate, Regime
from decoding.policy.checks import PolicyError
from decoding.policy.decoding_policy import PRESETS, DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.presets import resolve_policy
from decoding.policy.repair import Repair
from decoding.sampling.block_schedule import CONSTANT, TAIL_SCHEDULES
from decoding.sampling.commit_order import CONFIDENCE, ORDERS, base_order
from decoding.sampling.tail_rule import TAIL_RULES, TOP_K
from gate_models.gates.sources import SOURCES, needs_family

_TRAINED: Final = ", ".join(
    f"{facts.short_name}[:{facts.short_number.upper()}]" if facts.short_number else str(facts.short_name)
    for facts in SOURCES.values()
    if facts.trained
)
HELP: Final = (
    "comma-separated: base, full_cfg, handoff:FRACTION, parallel_tail:FRACTION (8 wide), drained:THRESHOLD, constant "
    f"(the family's cut), calibrated (drained at the family's measured threshold), {_TRAINED} (the family's learned "
    "gates; full CFG where it has none in the setting) or recorded (the prompt's horizon of a census; no gate that "
    "could be served), each with optional :kN (tail width; guided width for full_cfg), :aX (adaptive tail threshold), "
    ":rprefixN or :rdualN (the tail reuses keys and values, refreshed every N steps), :RULE (tail rule: spaced, "
    "best_of_run, ...), :growing (tail schedule), :mendN (passes that mend the tail), :tX (temperature of the "
    "tail), :wX (guidance scale), :ORDER (random, "
    "conditional, guidance_boost, ...), :pX (plausibility), :gN (guided width), :bX (boost threshold; up to 8 "
    "positions unless :gN), :mN (drained gates look again every N base steps), "
    ":repairKxR[-SELECTOR][@ANCHOR] (reopen K positions of a "
    "failed text, R rounds), :bestN (N attempts until one holds), :rowsN (budget of repair); or auto, "
    "auto:ROWS: the cascade and its budget"
)


BOOSTED_WIDTH: Final = 8
_NUMBER: Final = re.compile(r"\d*\.?\d+")
_WHOLE: Final = {"g": "guided_width", "m": "recheck", "mend": "tail_mend"}
_REAL: Final = {
    "a": "tail_threshold",
    "w": "guidance_scale",
    "b": "boost_threshold",
    "t": "tail_temperature",
    "p": "plausibility",
}
_NUMBERED: Final = {"handoff": "handoff", "parallel_tail": "parallel_tail", "drained": "handoff"}
"""Names that take a number, and the presets that they stand for."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with the gate that it names."""

    name: str
    policy: DecodingPolicy
    gate: Gate
    attempts: int = 1
    """Best of so many: independent attempts, until one satisfies its constraint."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a name says: nothing that it leaves open."""

    preset: str
    given: dict[str, Any]
    """Fields of a policy; `gate` where the name says one."""
    gate: GateSettings | None
    attempts: int


def parse_policy(name: str, guidance_scale: float | None = None) -> NamedPolicy:
    """The policy that `name` stands for. Raises `ValueError` that says what is wrong with it."""
    try:
        read = read_name(name)
        given = dict(read.given)
        if guidance_scale is not None and read.preset != "base":
            given.setdefault("guidance_scale", guidance_scale)
        if read.preset in ("handoff", "parallel_tail"):
            # A study tells what a gate does: where it serves nothing, nothing is saved.
            given["on_fallback"] = "full_cfg"
        policy = resolve_policy(read.preset, given)
    except PolicyError as error:
        raise ValueError(f"policy {name!r}: {error.param} {error}") from None
    except ValueError as error:
        raise ValueError(
            str(error) if name in str(error) else f"policy {name!r}: {error}; policies are {HELP}"
        ) from None
    return NamedPolicy(name, policy, _gate(read.gate or GateSettings("never")), read.attempts)


def read_name(name: str, *, number_needed: bool = True) -> Reading:
    """The parts of `name`. Raises `ValueError` for an option that there is none of, and `PolicyError` for a number out
    of bounds.

    `number_needed`: `handoff`, `parallel_tail` and `drained` want their number, as in a study; else their gate is left
    open.
    """
    head, *options = name.split(":")
    given: dict[str, Any] = {}
    preset, setting = head, None
    if head in _NUMBERED:
        preset = _NUMBERED[head]
        if number_needed or (options and _NUMBER.fullmatch(options[0])):
            value = _number(name, head, options)
            setting = (
                GateSettings("drained", threshold=value)
                if head == "drained"
                else GateSettings("fraction", fraction=value)
            )
        elif head == "drained":
            setting = GateSettings("drained")
    if (by_family := _by_family(head, options)) is not None:
        preset, setting = "handoff", by_family
    if head == "auto" and options:
        given["budget_rows"] = int(_number(name, head, options))
    attempts = 1
    for option in options:
        if best := re.fullmatch(r"best(\d+)", option):
            attempts = max(1, int(best[1]))
        else:
            given |= _option(option, preset)
    if "recheck" in given:
        setting = replace(setting or GateSettings("never"), recheck=given.pop("recheck"))
    if "boost_threshold" in given:
        given.setdefault("guided_width", BOOSTED_WIDTH)
    if setting is not None:
        given["gate"] = setting
    return Reading(preset, given, setting, attempts)


def heads() -> tuple[str, ...]:
    """What a name may begin with."""
    short = (facts.short_name for facts in SOURCES.values())
    return tuple(dict.fromkeys([*PRESETS, *_NUMBERED, *(name for name in short if name)]))


def _by_family(head: str, options: list[str]) -> GateSettings | None:
    """The setting of a name whose gate is the family's or the prompt's, its number taken out of `options`."""
    named = ((source, facts.short_number) for source, facts in SOURCES.items() if facts.short_name == head)
    source, number = next(named, (None, None))
    if source is None:
        return None
    given: dict[str, Any] = {}
    if number is not None and options and _NUMBER.fullmatch(options[0]):
        given[number] = float(options.pop(0))
    return GateSettings(source, **given)


def at_weight(name: str, weight: float) -> NamedPolicy:
    """The policy of `name` at another guidance scale. At 0, and where it never guides: the base decoder with its tail.

    Names of base decoders are made from what they do, so that equal ones have one name.
    """
    named = parse_policy(name)
    policy = named.policy
    if weight != 0.0 and policy.preset != "base":
        parts_but_weight = [part for part in name.split(":") if not re.fullmatch(r"w\d+(\.\d+)?", part)]
        return parse_policy(":".join([*parts_but_weight, f"w{weight:g}"]))
    parts = ["base"]
    if policy.tail_width != 1:
        parts.append(f"k{policy.tail_width}")
    if policy.tail_rule != TOP_K:
        parts.append(policy.tail_rule)
    if policy.tail_schedule != CONSTANT:
        parts.append(policy.tail_schedule)
    if policy.tail_mend is not None:
        parts.append(f"mend{policy.tail_mend}")
    if policy.tail_threshold is not None:
        parts.append("a" + f"{policy.tail_threshold:.12f}".rstrip("0").rstrip("."))
    if policy.tail_reuse is not None:
        parts.append(f"r{policy.tail_reuse}{policy.tail_refresh}")
    if base_order(policy.order) != CONFIDENCE:
        parts.append(policy.order)
    if named.attempts > 1:
        parts.append(f"best{named.attempts}")
    return parse_policy(":".join(parts))


def _number(name: str, head: str, options: list[str]) -> float:
    try:
        return float(options.pop(0))
    except (IndexError, ValueError):
        raise ValueError(f"policy {name!r} needs a number after its name, such as {head}:0.3") from None


def _verified_option(option: str) -> dict[str, Any] | None:
    """What a failed text gets; None for any other option."""
    if rows := re.fullmatch(r"rows(\d+)", option):
        return {"budget_rows": int(rows[1])}
    repair = re.fullmatch(r"repair(\d+)x(\d+)(?:-([a-z_]+))?(?:@(0?\.\d+))?", option)
    if repair is None:
        return None
    given: dict[str, Any] = {"reopen": int(repair[1]), "max_rounds": int(repair[2])}
    if repair[3]:
        given["selector"] = repair[3]
    if repair[4]:
        given["anchor"] = float(repair[4])
    return {"repair": Repair(**given)}


def _option(option: str, preset: str) -> dict[str, Any]:
    if (verified := _verified_option(option)) is not None:
        return verified
    for field, names in (("order", ORDERS), ("tail_rule", TAIL_RULES), ("tail_schedule", TAIL_SCHEDULES)):
        if option in names:
            return {field: option}
    if reuse := re.fullmatch(r"r([a-z]+)(\d+)", option):
        return {"tail_reuse": reuse[1], "tail_refresh": int(reuse[2])}
    match = re.fullmatch(r"(mend|[kawgbmpt])(\d+(?:\.\d+)?)", option)
    if match is None:
        raise ValueError(f"option {option!r} is unknown")
    kind, number = match[1], float(match[2])
    if kind == "k":
        return {"guided_width" if preset == "full_cfg" else "tail_width": int(number)}
    if kind in _WHOLE:
        return {_WHOLE[kind]: int(number)}
    return {_REAL[kind]: number}


def _gate(setting: GateSettings) -> Gate:
    if needs_family(setting):
        return NeverGate()  # until the family and the model are known, and with them its gate
    regime = Regime("", None, 2.0, 1, 1, 1, 1.0, None, "probability", "confidence", "as_is")
    gate = BuiltinGates().resolve(setting, regime).gate
    if gate is None:
        raise ValueError(f"gate source {setting.source!r} cannot be used offline")
    return gate
