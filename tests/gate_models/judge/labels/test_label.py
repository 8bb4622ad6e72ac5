"""Reading a sheet: nothing but the text is shown, every answer is kept, a second call goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from gate_models.offline.judge.labels import label
from gate_models.offline.judge.labels.sheet import SheetText, read_labels, reading_order, text_id, write_sheet
from service.cli import app

TEXTS = [
    SheetText(text_id(f"Text {i}."), f"Text {i}.", "ours", "a-family", "a-policy", "a-model", "a-prompt")
    for i in range(5)
]


def read(path: Path, answers: str, number: int = 1, most: int | None = None) -> tuple[int, list[str]]:
    said: list[str] = []
    keys: Iterator[str] = iter(answers)
    given = label.read(
        TEXTS, path, reader="me", number=number, seed=3, ask=lambda _: next(keys), say=said.append, most=most
    )
    return given, said


def test_it_shows_the_text_alone_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    given, said = read(path, "cbq")
    assert given == 2
    assert len(said) == 3
    order = reading_order(TEXTS, 1, seed=3)
    assert [line.split("  ")[1] for line in said] == [text.text for text in order[:3]]
    assert not any(word in line for line in said for word in ("family", "policy", "model", "prompt", "ours"))
    given, said = read(path, "aaa")
    assert given == 3
    assert said[0].strip().startswith("3/5")
    assert [(one.id, one.label) for one in read_labels(path)] == [
        (text.id, name) for text, name in zip(order, ["clean", "broken", *["acceptable"] * 3], strict=True)
    ]
    assert read(path, "") == (0, [])


def test_a_key_that_means_nothing_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    assert read(path, "x?Cq")[0] == 1
    assert read_labels(path)[0].label == "clean"


def test_a_pass_and_a_portion_of_it(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    assert read(path, "ccccc")[0] == 5
    assert read(path, "bb", number=2, most=2)[0] == 2
    assert [(one.number, one.label) for one in read_labels(path)[5:]] == [(2, "broken")] * 2


def test_the_command(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.jsonl"
    write_sheet(sheet, TEXTS)
    run = CliRunner().invoke(app, ["label", str(sheet), "--reader", "me"], input="c\na\nq\n")
    assert run.exit_code == 0
    assert "2 labels written" in run.output
    assert len(read_labels(tmp_path / "labels.jsonl")) == 2
    missing = CliRunner().invoke(app, ["label", str(tmp_path / "none.jsonl")])
    assert missing.exit_code == 2
