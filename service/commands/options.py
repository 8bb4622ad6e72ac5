"""Options that several commands share, and how comma-separated ones are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Subtasks = Annotated[str, typer.Option(help="Subtasks separated by commas, or `all`.")]
PromptsASubtask = Annotated[int | None, typer.Option(min=1, help="Prompts a subtask (default: all it has).")]
Model = Annotated[str, typer.Option(help="`mini` or a checkpoint folder.")]
MaxRows = Annotated[int, typer.Option(min=2, help="Rows a forward.")]
BatchInvariant = Annotated[bool, typer.Option(help="Bit-equal whatever shares the batch.")]


def writable(path: Path | None, option: str, *, folder: bool = False) -> None:
    """Make the folders above a file (or `folder`) that is written at the end of long work, so that a path that cannot
    be written is told before the work. Raises `ValueError` naming `option`.
    """
    if path is None:
        return
    above = path if folder else path.parent
    try:
        above.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be written: {error}") from None
    if path.is_dir() and not folder:
        raise ValueError(f"{option} {path} is a folder; name a file in it")
    if not all(os.access(place, os.W_OK) for place in (above, path) if place.exists()):
        raise ValueError(f"{option} {path} cannot be written; choose another place")


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas; blanks around them do not count. Raises `ValueError` where there is none."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError(f"{text!r} names nothing; give names separated by commas")
    return found


def numbers(text: str) -> tuple[float, ...]:
    """Numbers separated by commas; none where `text` is empty. Raises `ValueError`."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 0.5,1,2") from None


def wholes(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas; none where `text` is empty. Raises `ValueError`."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of whole numbers such as 1,2,8") from None
