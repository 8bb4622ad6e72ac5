"""A model's own defaults in place of the presets': which of them fit a request that sets some fields itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from decoding.policy.checks import PolicyError, one_of
from decoding.policy.decoding_policy import PRESETS, DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.repair import Repair
from decoding.sampling.commit_order import guided_orders

_OF_TAILS: Final = ("tail_rule", "tail_schedule", "tail_mend", "tail_temperature")
EVERY_PRESET: Final = ("guidance_scale", "order", "plausibility", *_OF_TAILS)
"""Defaults that hold for every preset that uses the field; all others hold for the default preset alone."""
_PARTS: Final[Mapping[str, type]] = {"gate": GateSettings, "repair": Repair}


def policy_defaults(written: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `generation_config.json`'s policy, checked one by one; `preset` is among them where it is given.

    Raises `PolicyError` whose `param` names the field at fault.
    """
    known = {item.name for item in fields(DecodingPolicy)}
    defaults: dict[str, Any] = {}
    for name, value in written.items():
        if name not in known:
            raise PolicyError(name, f"is no field of a policy; those are {', '.join(sorted(known))}")
        if name in _PARTS and not isinstance(value, dict):
            raise PolicyError(name, "must be an object")
        try:
            defaults[name] = _PARTS[name](**value) if name in _PARTS else value
        except TypeError as error:
            raise PolicyError(name, f"cannot be read: {error}") from None
    one_of("preset", defaults.get("preset", "handoff"), PRESETS)
    return defaults


def fitting(
    defaults: Mapping[str, Any], given: Mapping[str, Any], own: Mapping[str, Any], preset: str, unused: tuple[str, ...]
) -> dict[str, Any]:
    """Those of the model's `defaults` that a request of `preset` takes which sets the fields `given`.

    `own` are the preset's defaults, `unused` the fields that it does not read. A default that would mean nothing beside
    the other fields is left out.
    """
    everything = preset == defaults.get("preset", "handoff")
    fixed = {*given, *unused, "preset"} if everything else {*given, *unused, *own, "preset"}
    taken = {
        name: value for name, value in defaults.items() if name not in fixed and (everything or name in EVERY_PRESET)
    }
    values = {**own, **taken, **given}
    idle = _meaningless(values, values.get("gate", GateSettings()))
    return {name: value for name, value in taken.items() if name not in idle}


def _meaningless(values: Mapping[str, Any], gate: GateSettings) -> set[str]:
    """Fields of `values` that no step would read, or that could be what a request fails by."""
    idle: set[str] = set()
    scale = values.get("guidance_scale", DecodingPolicy.__dataclass_fields__["guidance_scale"].default)
    hands_off = scale > 0.0 and gate.source != "never"
    if scale == 0.0:
        idle |= {"plausibility", "guided_width", "boost_threshold"}
        if values.get("order") in guided_orders():
            idle.add("order")
    if not hands_off:
        idle.add("tail_temperature")
    if scale > 0.0 and gate.source == "never":
        idle |= {"tail_width", "tail_reuse"}
    if values.get("tail_width", 1) == 1 or "tail_width" in idle:
        idle |= {"tail_rule", "tail_schedule", "tail_mend", "tail_threshold"}
    if gate.recheck is not None:
        idle.add("tail_mend")
    if values.get("budget_rows") is not None:
        idle |= {"tail_rule", "tail_mend", "tail_threshold"}  # a budget must hold the slowest pace that they allow
    if values.get("tail_reuse") is None:
        idle.add("tail_refresh")
    return idle
