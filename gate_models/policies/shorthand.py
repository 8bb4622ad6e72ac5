"""Short names where a request has an object: `"policy": "value:k8"` and `"gate": "drained:0.5"`, as JSON objects.

The names are those of `astargate evaluate --policies` (`names.py`); what a name leaves open the server fills in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from decoding.constraints.text.suggestion import suggestion
from decoding.policy.checks import PolicyError
from decoding.policy.gate import GateSettings
from decoding.policy.repair import Repair
from gate_models.gates.sources import SOURCES
from gate_models.policies.names import heads, read_name

NUMBERS: Final[Mapping[str, str]] = {
    "fraction": "fraction",
    "drained": "threshold",
    **{source: facts.short_number for source, facts in SOURCES.items() if facts.short_number},
}
"""By gate source: the setting that a number after its name sets."""
MAX_NAME: Final = 200
"""Characters of a name."""


def policy_object(name: str) -> dict[str, Any]:
    """The policy that `name` says, as the API takes it. Raises `ValueError` that says what is wrong with it."""
    _check_length(name)
    head = name.partition(":")[0]
    if head not in heads():
        raise ValueError(f"{name!r} is no policy; names begin with {', '.join(heads())}{suggestion(head, heads())}")
    try:
        read = read_name(name, number_needed=False)
    except PolicyError as error:
        raise ValueError(f"{name!r}: {error.param} {error}") from None
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    if read.attempts > 1:
        raise ValueError(f"{name!r}: bestN is of studies alone; use preset 'auto', which tries again what failed")
    fields: dict[str, Any] = {"preset": read.preset, **read.given}
    if isinstance(setting := fields.get("gate"), GateSettings):
        fields["gate"] = _set(asdict(setting))
    if isinstance(repair := fields.get("repair"), Repair):
        usual = asdict(Repair())
        fields["repair"] = {key: value for key, value in asdict(repair).items() if value != usual[key]}
    return fields


def gate_object(name: str) -> dict[str, Any]:
    """The gate that `name` says (`value`, `fraction:0.3`), as the API takes it. Raises `ValueError`."""
    _check_length(name)
    source, colon, number = name.partition(":")
    if source not in SOURCES:
        names = tuple(SOURCES)
        raise ValueError(f"{name!r} is no gate; sources are {', '.join(names)}{suggestion(source, names)}")
    if not colon:
        return {"source": source}
    setting = NUMBERS.get(source)
    if setting is None:
        raise ValueError(f"{name!r}: source {source!r} takes no number; leave it out")
    try:
        return {"source": source, setting: float(number)}
    except ValueError:
        raise ValueError(f"{name!r} needs a number after the colon, its {setting}") from None


def _check_length(name: str) -> None:
    if len(name) > MAX_NAME:
        raise ValueError(f"must have at most {MAX_NAME} characters where it is a name")


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
