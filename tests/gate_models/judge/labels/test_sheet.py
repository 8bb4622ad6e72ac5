"""The label sheet: what is written is read, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gate_models.offline.judge.labels.sheet import (
    Label,
    SheetText,
    append_label,
    read_labels,
    read_sheet,
    reading_order,
    text_id,
    write_sheet,
)

TEXTS = [SheetText(text_id(f"Text {i}."), f"Text {i}.", "ours", "commongen-k3", "base T=1") for i in range(30)]


def test_a_sheet_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "sheet.jsonl"
    write_sheet(path, TEXTS)
    assert read_sheet(path) == TEXTS


def test_an_edited_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sheet.jsonl"
    write_sheet(path, TEXTS)
    path.write_text(path.read_text().replace("Text 3.", "Text three."))
    with pytest.raises(ValueError, match="do not fit their texts"):
        read_sheet(path)


def test_a_text_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sheet.jsonl"
    write_sheet(path, [*TEXTS, TEXTS[0]])
    with pytest.raises(ValueError, match="twice"):
        read_sheet(path)


def test_an_unknown_field_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "sheet.jsonl"
    write_sheet(path, TEXTS[:1])
    path.write_text(path.read_text() + json.dumps({"id": "x", "colour": "red"}) + "\n")
    with pytest.raises(ValueError, match=r"sheet\.jsonl:2: .*colour"):
        read_sheet(path)


def test_labels_come_back_and_tell_no_source(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    assert read_labels(path) == []
    labels = [Label(TEXTS[0].id, 1, "me", "clean"), Label(TEXTS[0].id, 2, "me", "broken")]
    for label in labels:
        append_label(path, label)
    assert read_labels(path) == labels
    assert set(json.loads(path.read_text().splitlines()[0])) == {"id", "pass", "reader", "label"}


def test_an_unknown_label_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "x", "pass": 1, "reader": "me", "label": "fine"}\n')
    with pytest.raises(ValueError, match=r"labels\.jsonl:1: label 'fine' is none of clean"):
        read_labels(path)


def test_each_pass_has_an_order_that_the_sheet_does_not_tell() -> None:
    one, two = reading_order(TEXTS, 1, seed=7), reading_order(TEXTS, 2, seed=7)
    assert sorted(text.id for text in one) == sorted(text.id for text in two) == sorted(text.id for text in TEXTS)
    assert one != two != TEXTS != one
    assert reading_order(TEXTS[::-1], 1, seed=7) == one
