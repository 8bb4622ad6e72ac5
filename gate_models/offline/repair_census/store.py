"""The file of a repair census: a header, then a line of JSON for each run. A killed census goes on behind the last."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

Units = list[dict[str, Any]]
Add = Callable[[Mapping[str, Any]], None]
PROTOCOL: Final = 2
"""Raised where anchors, populations or arms come to mean something else: such files are not gone on with."""
MAY_GROW: Final = frozenset({"subtasks", "prompts", "seeds", "threads", "device"})
"""Settings that runs of one file need not share."""


def header_of(settings: Mapping[str, Any], model_hash: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """What every run of a file shares, as JSON has it."""
    kept = {name: value for name, value in settings.items() if name not in MAY_GROW}
    header = {"protocol": PROTOCOL, "settings": kept, "model_hash": model_hash, "versions": dict(versions)}
    return dict(json.loads(json.dumps(header)))


@contextmanager
def opened(path: Path, header: Mapping[str, Any]) -> Iterator[tuple[Units, Add]]:
    """The units that `path` holds, and what appends one. A new file gets the header.

    Raises `ValueError` where the file holds another census, `BlockingIOError` where another process is at it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.seek(0)
        whole = [line for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
        file.truncate(sum(len(line.encode()) for line in whole))

        def add(content: Mapping[str, Any]) -> None:
            file.write(json.dumps(content) + "\n")
            file.flush()

        if not whole:
            add(header)
        elif json.loads(whole[0]) != header:
            raise ValueError(
                f"{path} holds a repair census of another model, version or settings; choose another --out"
            )
        yield [json.loads(line) for line in whole[1:]], add


def read_units(path: Path) -> tuple[dict[str, Any], Units]:
    """Header and units of a census file; a last line that is being written is left out.

    Raises `ValueError` where the file is no repair census.
    """
    lines = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    try:
        header, *units = map(json.loads, lines)
        if "settings" not in header:
            raise ValueError("it has no header")
    except ValueError as error:
        raise ValueError(f"{path}: not a repair census: {error}") from None
    return header, units
