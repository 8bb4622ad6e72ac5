"""`astargate label`: shows the texts of a sheet one by one, their sources hidden, and writes what a reader says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gate_models.offline.judge.labels.sheet import Label, LabelName, SheetText, append_label, read_labels, reading_order

KEYS: Final[dict[str, LabelName]] = {"c": "clean", "a": "acceptable", "b": "broken"}
QUESTION: Final = "[c]lean, [a]cceptable, [b]roken; [q]uit"
Ask = Callable[[str], str]
Say = Callable[[str], None]


def waiting(texts: list[SheetText], labels: list[Label], reader: str, number: int, seed: int) -> list[SheetText]:
    """What this reader has yet to read in pass `number`, in its order."""
    done = {label.id for label in labels if (label.reader, label.number) == (reader, number)}
    return [text for text in reading_order(texts, number, seed) if text.id not in done]


def read(
    texts: list[SheetText], path: Path, *, reader: str, number: int, seed: int, ask: Ask, say: Say, most: int | None
) -> int:
    """Ask for labels until the pass is done, `most` are given or the reader quits; return how many were given."""
    left = waiting(texts, read_labels(path), reader, number, seed)
    total = len(texts)
    for given, text in enumerate(left):
        if given == most:
            return given
        say(f"\n{total - len(left) + given + 1}/{total}  {text.text}")
        answer = _answer(ask)
        if answer is None:
            return given
        append_label(path, Label(text.id, number, reader, answer))
    return len(left)


def _answer(ask: Ask) -> LabelName | None:
    """A label, or None to quit."""
    while True:
        key = ask(QUESTION).strip().lower()[:1]
        if key == "q":
            return None
        if key in KEYS:
            return KEYS[key]
