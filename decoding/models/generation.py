"""What a model does with a request that leaves things open: the `generation_config.json` beside its weights.

`temperature` and `top_p` mean what they mean to `transformers`; `policy` is ours and holds fields of a decoding policy.
Other keys of the file belong to other programs and are not read. Without the file a request gets the paper's plain
guidance: temperature 1 and the policy's own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from decoding.models.checkpoint import CheckpointError, json_object

FILE: Final = "generation_config.json"
_RANGES: Final[Mapping[str, tuple[float, float]]] = {"temperature": (0.0, 5.0), "top_p": (0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """Defaults of a model; as built here, those of the paper."""

    temperature: float = 1.0
    top_p: float = 1.0
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a policy as POST /generate takes them; `decoding.policy.model_defaults` checks them."""


def read_generation_config(folder: Path) -> GenerationConfig:
    """The file of a checkpoint folder. Raises `CheckpointError` that names the file and the value at fault."""
    path = folder / FILE
    if not path.is_file():
        return GenerationConfig()
    values = json_object(path)
    given: dict[str, Any] = {}
    for name, (low, high) in _RANGES.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise CheckpointError(f"{path}: {name} must be a number from {low:g} to {high:g}, not {value!r}")
        given[name] = float(value)
    if given.get("top_p") == 0.0:
        raise CheckpointError(f"{path}: top_p must be above 0; leave it out for the whole distribution")
    policy = values.get("policy") or {}
    if not isinstance(policy, dict):
        raise CheckpointError(f"{path}: policy must be an object of policy fields, not {policy!r}")
    return GenerationConfig(**given, policy=policy)
