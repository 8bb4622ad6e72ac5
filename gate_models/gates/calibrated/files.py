"""Files of calibrated gates: how they are read and written, and which entry serves a setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from decoding.gates.protocol import Regime


class Calibrated(Protocol):
    """A setting that was measured in one regime."""

    @property
    def regime(self) -> Regime: ...


C = TypeVar("C", bound=Calibrated)


def shipped_file(name: str) -> Path:
    """A file of the package's artifacts, there or not."""
    return Path(str(files("gate_models"))) / "artifacts" / name


def read_entries(path: Path, what: str, key: str, form: int, build: Callable[[Mapping[str, Any]], C]) -> list[C]:
    """The entries under `key` of a JSON file of format `form`. Raises `ValueError` that says what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != form:
            raise ValueError(f"format {content['format']} is not {form}")
        return [build(entry) for entry in content[key]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of {what}: {error}") from None


def write_entries(path: Path, key: str, form: int, entries: Sequence[Any], indent: int | None = 1) -> None:
    """Write dataclasses as `read_entries` reads them: one a line where `indent` is None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [asdict(entry) for entry in entries]
    if indent is not None:
        text = json.dumps({"format": form, key: plain}, indent=indent)
    else:
        lines = ",\n".join(json.dumps(entry) for entry in plain)
        text = f'{{"format": {form}, "{key}": [\n{lines}\n]}}'
    path.write_text(text + "\n", encoding="utf-8")


def differences(a: Regime, b: Regime) -> list[str]:
    """Names of the fields in which two regimes differ."""
    return [item.name for item in fields(Regime) if getattr(a, item.name) != getattr(b, item.name)]


def nearest(entries: Sequence[C], regime: Regime) -> tuple[C, list[str]] | None:
    """The entry of `regime`'s family that differs in fewest fields, with those; None where the family has none."""
    of_family = [entry for entry in entries if regime.family is not None and entry.regime.family == regime.family]
    if not of_family:
        return None
    best = min(of_family, key=lambda entry: len(differences(entry.regime, regime)))
    return best, differences(best.regime, regime)
