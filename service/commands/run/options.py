"""What `astargate run` asks for, as options of the command line and as the body of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gate_models.policies.shorthand import gate_object, policy_object


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a text is asked for on the command line."""

    keywords: str | None = None
    """Comma-separated words that the text must use."""
    constraint: str | None = None
    """Any constraint, as a JSON object."""
    policy: str | None = None
    """A preset (base, full_cfg, handoff, parallel_tail, reopen_repair, auto), a short name such as value:k8 (those of
    `astargate evaluate --policies`), or a JSON object.
    """
    gate: str | None = None
    """What ends guidance: a source such as drained or value, with its number (fraction:0.3), or a JSON object."""
    tail_rule: str | None = None
    """Which positions of a wide step go together after the handoff: top_k, spaced, ..."""
    tail_width: int | None = None
    """Tokens a step after the handoff."""
    order: str | None = None
    """Which positions are committed first: confidence, guidance_boost, ..."""
    fraction: float | None = None
    """Hand off after this fraction of the steps: the same as --gate fraction:X."""
    on_fallback: str | None = None
    """Where no gate fits: drained (default), full_cfg, base or reject."""
    guidance_scale: float | None = None
    """w in c + w(c - u)."""
    defaults: str | None = None
    """Where what is left open comes from: model (default) or paper."""
    template: str | None = None
    """A text with blanks to fill, such as 'A dog [blank:3-5] the ball.'."""
    gen_length: int | None = None
    """Canvas length in tokens."""
    steps: int | None = None
    """Denoising steps."""
    temperature: float | None = None
    """Sampling temperature."""
    seed: int | None = None
    """Random where left out."""
    n: int = 1
    """Texts of the prompt."""

    def __post_init__(self) -> None:
        if self.keywords is not None and self.constraint is not None:
            raise ValueError("give --keywords or --constraint, not both")
        if self.fraction is not None and self.gate is not None:
            raise ValueError("give --gate or --fraction, not both")

    def body(self, prompt: str) -> dict[str, Any]:
        """The request as JSON; what is not given is left to the server."""
        given = {name: getattr(self, name) for name in ("template", "temperature", "gen_length", "steps", "seed")}
        body: dict[str, Any] = {"prompt": prompt, "n": self.n, **_set(given)}
        if self.keywords is not None:
            words = [word.strip() for word in self.keywords.split(",") if word.strip()]
            if not words:
                raise ValueError("--keywords names no word; separate words by commas")
            body["constraint"] = {"type": "keywords", "keywords": words}
        if self.constraint is not None:
            body["constraint"] = _object("--constraint", self.constraint)
        body["policy"] = self._policy()
        return body

    def _policy(self) -> dict[str, Any]:
        """The policy that is named, with what the other options say over it."""
        policy: dict[str, Any] = {}
        if self.policy is not None:
            named = self.policy.lstrip().startswith("{")
            policy = _object("--policy", self.policy) if named else policy_object(self.policy)
        over = ("defaults", "on_fallback", "guidance_scale", "tail_width", "tail_rule", "order")
        policy |= _set({name: getattr(self, name) for name in over})
        if self.gate is not None:
            given = self.gate.lstrip().startswith("{")
            policy["gate"] = _object("--gate", self.gate) if given else gate_object(self.gate)
        if self.fraction is not None:
            policy["gate"] = {"source": "fraction", "fraction": self.fraction}
        return policy


def _object(option: str, text: str) -> dict[str, Any]:
    """The JSON object that an option holds."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{option} must be a JSON object, such as {{...}}")
    return value


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """Those of `values` that were given."""
    return {name: value for name, value in values.items() if value is not None}
