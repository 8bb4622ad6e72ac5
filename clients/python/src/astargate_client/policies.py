"""Policies, a function for each preset of the server, and the gates that end guidance; `client.policies()` lists both.

Which settings a preset takes, and their bounds, is checked by the server. What this client does not know can be given
as a dictionary.
"""

from __future__ import annotations

from typing import Any, Unpack

from astargate_client.transport.params import known
from astargate_client.transport.specs import Gate, GateLike, Policy
from astargate_client.wire.requests import GateOptions, PolicySettings


def _policy(preset: str, gate: GateLike | None, settings: PolicySettings) -> Policy:
    fields: dict[str, Any] = {"preset": preset}
    if gate is not None:
        plain = isinstance(gate, str) and ":" not in gate  # the server reads a number behind a name
        fields["gate"] = Gate({"source": gate}) if plain else gate
    return Policy(fields | known(preset, settings, PolicySettings))


def base(**settings: Unpack[PolicySettings]) -> Policy:
    """No guidance: one forward evaluation a step; `tail_width` tokens a step."""
    return _policy("base", None, settings)


def full_cfg(**settings: Unpack[PolicySettings]) -> Policy:
    """Guidance in every step: two forward evaluations a step."""
    return _policy("full_cfg", None, settings)


def handoff(gate: GateLike | None = None, **settings: Unpack[PolicySettings]) -> Policy:
    """Guidance until `gate` ends it (the learned gate where left out), then the base decoder."""
    return _policy("handoff", gate, settings)


def parallel_tail(gate: GateLike | None = None, **settings: Unpack[PolicySettings]) -> Policy:
    """As `handoff`, with several tokens a step after it."""
    return _policy("parallel_tail", gate, settings)


def reopen_repair(gate: GateLike | None = None, **settings: Unpack[PolicySettings]) -> Policy:
    """As `handoff`; a text that fails its constraint is partly masked again and decoded anew under guidance."""
    return _policy("reopen_repair", gate, settings)


def auto(**settings: Unpack[PolicySettings]) -> Policy:
    """Attempts from cheap to dear until the constraint holds or `budget_rows` are spent."""
    return _policy("auto", None, settings)


def gate(source: str, **options: Unpack[GateOptions]) -> Gate:
    """A gate by its source, with the settings that the source takes."""
    return Gate({"source": source} | known("gate", options, GateOptions))


def fraction(share: float) -> Gate:
    """Hand off after this share of the steps."""
    return gate("fraction", fraction=share)


def drained(
    threshold: float | None = None,
    *,
    margin: float | None = None,
    earliest: float | None = None,
    recheck: int | None = None,
) -> Gate:
    """Hand off once guidance moves no distribution by more than `threshold` (total variation).

    Without it the server takes the family's calibrated threshold, elsewhere the model's pooled one. With `margin` it
    takes the largest one that is certified to lose less success than that. With `earliest` no handoff comes before that
    share of the steps. With `recheck` guidance comes back for one step after every so many base steps, and stays where
    it is not drained.
    """
    return gate("drained", threshold=threshold, margin=margin, earliest=earliest, recheck=recheck)


def risk(margin: float | None = None, confidence: float | None = None) -> Gate:
    """Lose at most `margin` of the success, with this `confidence`."""
    return gate("risk", margin=margin, confidence=confidence)


def value(row_price: float | None = None) -> Gate:
    """Keep guidance while it is worth more than `row_price` a forward evaluation."""
    return gate("value", row_price=row_price)
