"""Comma-separated options: one way of reading them, and errors that say what to write."""

from __future__ import annotations

import pytest

from service.commands import bench, census_ofat, evaluate, repair_census
from service.commands.options import names, numbers, wholes, writable


def test_blanks_around_names_do_not_count():
    assert names(" base , full_cfg,") == ("base", "full_cfg")
    assert numbers("0.5, 1 ,") == (0.5, 1.0)
    assert wholes(" 1, 3") == (1, 3)
    assert numbers("") == wholes(" ") == ()


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (names, " , ", "names nothing"),
        (numbers, "x", "'x' is not a list of numbers such as"),
        (wholes, "1.5", "'1.5' is not a list of whole numbers such as"),
    ],
)
def test_what_is_no_list_is_said(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_path_is_made_fit_or_refused_before_the_work(tmp_path, capsys):
    import typer

    writable(tmp_path / "new" / "report.md", "--report")
    assert (tmp_path / "new").is_dir()
    writable(tmp_path / "gates", "--out", folder=True)
    assert (tmp_path / "gates").is_dir()
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ValueError, match=r"--out .*file cannot be written"):
        writable(file, "--out", folder=True)
    for command, fields in (
        (bench, {"out": file / "bench.json"}),
        (bench, {"out": tmp_path, "with_horizon": True}),
        (evaluate, {"out": file / "result.json"}),
        (repair_census, {"out": tmp_path / "units.jsonl", "subtasks": "ccg-length", "report": file / "report.md"}),
    ):
        with pytest.raises(typer.Exit) as ended:
            command.run(**fields)
        assert ended.value.exit_code == 2
        assert "cannot be written" in (said := capsys.readouterr().err) or "is a folder" in said
    assert not (tmp_path / "units.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        (census_ofat, {"subtasks": "ccg-length", "weights": "x"}, "census-ofat: 'x' is not a list of numbers"),
        (census_ofat, {"subtasks": "ccg-length", "steps": "8,x"}, "census-ofat: '8,x' is not a list of whole numbers"),
        (repair_census, {"subtasks": "ccg-length , nowhere"}, "repair-census: task 'nowhere' is unknown"),
        (repair_census, {"subtasks": "ccg-length", "counts": "1,x"}, "repair-census: '1,x' is not a list of whole"),
        (repair_census, {"subtasks": "ccg-length", "selectors": "random, luck"}, "selector 'luck' is unknown"),
        (evaluate, {"task": "ccg-length, nowhere", "policies": "base , full_cfg"}, "evaluate: task 'nowhere'"),
        (evaluate, {"task": "ccg-length", "split": "audit, later"}, "evaluate: prompt set 'later' is unknown"),
    ],
)
def test_commands_read_them_so(command, fields, message, tmp_path, capsys):
    import typer

    with pytest.raises(typer.Exit) as ended:
        command.run(out=tmp_path / "out", **fields)
    assert ended.value.exit_code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
