"""Presets: shorthands for combinations of policy fields, and the policy that a preset and some fields make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from decoding.policy.checks import PolicyError, one_of
from decoding.policy.decoding_policy import NEEDS_REUSE, PRESETS, DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.model_defaults import fitting
from decoding.policy.repair import Repair
from decoding.sampling.commit_order import guidance_first_orders

_PRESET_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "base": {"guidance_scale": 0.0, "gate": GateSettings("never")},
    "full_cfg": {"gate": GateSettings("never")},
    "handoff": {"tail_width": 1, "on_fallback": "drained"},
    "parallel_tail": {"tail_width": 8, "on_fallback": "drained"},
    "reopen_repair": {"repair": Repair(), "on_fallback": "drained"},
    "auto": {},
}
_TAIL: Final = (
    *("tail_rule", "tail_schedule", "tail_mend", "tail_temperature", "tail_threshold"),
    *("tail_reuse", "tail_refresh"),
)
_UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "base": ("guided_width", "plausibility", "boost_threshold", "gate", "on_fallback"),
    "full_cfg": ("gate", "on_fallback", "tail_width", *_TAIL),
    "auto": (
        *("guided_width", "order", "plausibility", "boost_threshold", "gate", "tail_width"),
        *(*_TAIL, "on_fallback", "repair"),
    ),
}


def plainly_guided(policy: DecodingPolicy) -> DecodingPolicy:
    """`policy` guided as full CFG is, in confidence order: what a fallback to full CFG runs.

    A guidance-first order that never ends is another decoder, and loses success on families that do not drain.
    """
    if policy.order not in guidance_first_orders():
        return policy
    width = policy.guided_width if policy.boost_threshold is None else 1
    return replace(policy, order="confidence", boost_threshold=None, guided_width=width)


def resolve_policy(
    preset: str | None,
    given: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    gen_length: int | None = None,
    canvas_field: str = "gen_length",
) -> DecodingPolicy:
    """The policy of `preset` (None: the model's default, else 'handoff') with the fields in `given` set over it.

    `defaults` are the model's (`policy_defaults`) and stand in for the preset's; they are dropped where the request
    would fail with them. A field that the preset does not use is refused (`PolicyError`), not ignored.
    `parallel_tail`'s default width of 8 is cut to the canvas where `gen_length` is smaller. Errors call the canvas
    length `canvas_field`.
    """
    defaults = defaults or {}
    usual = defaults.get("preset", "handoff")
    for named in dict.fromkeys((preset or usual, preset or "handoff")):
        try:
            return _resolved(named, given, defaults, gen_length, canvas_field)
        except PolicyError:
            continue
    return _resolved(preset or "handoff", given, {}, gen_length, canvas_field)


def check_defaults(defaults: Mapping[str, Any]) -> None:
    """Raise `PolicyError` where the model's `defaults` make no policy: they must be right without any request."""
    _resolved(defaults.get("preset", "handoff"), {}, defaults, None, "gen_length")


def _resolved(
    preset: str, given: Mapping[str, Any], defaults: Mapping[str, Any], gen_length: int | None, canvas_field: str
) -> DecodingPolicy:
    one_of("preset", preset, PRESETS)
    unused = _UNUSED.get(preset, ())
    for name in unused:
        if name in given:
            raise PolicyError(name, f"is not used by preset '{preset}'; leave it out")
    if "tail_refresh" in given and given.get("tail_reuse") is None:
        raise PolicyError("tail_refresh", NEEDS_REUSE)
    own = _PRESET_DEFAULTS[preset]
    values = {**own, **fitting(defaults, given, own, preset, unused), **given}
    if gen_length is not None and "tail_width" not in given:
        values["tail_width"] = min(values.get("tail_width", 1), gen_length)
    policy = DecodingPolicy(preset=preset, **values)  # type: ignore[arg-type]
    if gen_length is not None:
        policy.check_canvas(gen_length, canvas_field)
    return policy
