"""The label sheet: texts to be read, and what readers said of them.

Sources and labels are two files, so that a reader's file gives no hint and many can read one sheet. Both are JSONL:
a `SheetText` a line, a `Label` a line. A text's id is its hash: equal texts are one text.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

LabelName = Literal["clean", "acceptable", "broken"]
LABELS: Final[tuple[LabelName, ...]] = get_args(LabelName)
PASSES: Final = 2


@dataclass(frozen=True, slots=True)
class SheetText:
    """One text and where it is from."""

    id: str
    text: str
    source: Literal["human", "ours"]
    family: str
    """The task of a text of ours; the collection of a human one."""
    policy: str
    """Policy and temperature of a text of ours, such as `full_cfg:w2 T=0.6`; `human`."""
    model: str = ""
    """Hash of the model; empty for human texts."""
    prompt: str = ""
    """Id of the prompt; empty for human texts."""
    seed: int = 0
    satisfied: bool | None = None
    """Whether the constraint holds; None for human texts."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a reader said of a text in one pass (from 1)."""

    id: str
    number: int
    reader: str
    label: LabelName


def text_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_sheet(path: Path) -> list[SheetText]:
    """Raises `ValueError` with the line that is wrong."""
    texts = [_record(path, number, line, SheetText) for number, line in _lines(path)]
    wrong = [text.id for text in texts if text.id != text_id(text.text)]
    if wrong:
        raise ValueError(f"{path}: ids {', '.join(wrong[:3])} do not fit their texts; was a text edited by hand?")
    if len({text.id for text in texts}) < len(texts):
        raise ValueError(f"{path}: a text stands there twice")
    return texts


def write_sheet(path: Path, texts: Iterable[SheetText]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(text)) + "\n" for text in texts), encoding="utf-8")


def read_labels(path: Path) -> list[Label]:
    """Every label; [] where there is no file. Raises `ValueError` with the line that is wrong."""
    if not path.is_file():
        return []
    labels = []
    for number, line in _lines(path):
        record = json.loads(line)
        label = Label(str(record["id"]), int(record["pass"]), str(record["reader"]), record["label"])
        if label.label not in LABELS:
            raise ValueError(f"{path}:{number}: label {label.label!r} is none of {', '.join(LABELS)}")
        labels.append(label)
    return labels


def append_label(path: Path, label: Label) -> None:
    """Written at once: a reader who stops loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"id": label.id, "pass": label.number, "reader": label.reader, "label": label.label}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def reading_order(texts: Sequence[SheetText], number: int, seed: int) -> list[SheetText]:
    """The order of pass `number`: random, another one in each pass, the same for everyone with that seed."""
    ordered = sorted(texts, key=lambda text: text.id)
    random.Random(f"{seed} {number}").shuffle(ordered)
    return ordered


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _lines(path: Path) -> list[tuple[int, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _record(path: Path, number: int, line: str, kind: Any) -> Any:
    try:
        return kind(**json.loads(line))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}:{number}: {error}") from None
