"""Options: built from dataclasses, one name for one thing, lists by commas, and errors that say what to write."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from service import cli
from service.commands.offline import bench, census, evaluate, repair
from service.commands.options import Command, from_settings, group, names, numbers, wholes, writable
from service.config import settings as config


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
    writable(tmp_path / "new" / "report.md", "--report")
    assert (tmp_path / "new").is_dir()
    writable(tmp_path / "gates", "--out", folder=True)
    assert (tmp_path / "gates").is_dir()
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ValueError, match=r"--out .*file cannot be written"):
        writable(file, "--out", folder=True)
    for command, fields in (
        (bench.run, {"out": file / "bench.json"}),
        (bench.run, {"out": tmp_path, "with_horizon": True}),
        (evaluate.run, {"out": file / "result.json"}),
        (repair.run, {"out": tmp_path / "units.jsonl", "subtasks": "ccg-length", "report": file / "report.md"}),
    ):
        with pytest.raises(typer.Exit) as ended:
            command(**fields)
        assert ended.value.exit_code == 2
        assert "cannot be written" in (said := capsys.readouterr().err) or "is a folder" in said
    assert not (tmp_path / "units.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        (
            census.one_factor,
            {"subtasks": ["ccg-length"], "guidance_scales": "x"},
            "'x' is not a list of numbers",
        ),
        (
            census.one_factor,
            {"subtasks": ["ccg-length"], "steps": "8,x"},
            "census one-factor: '8,x' is not a list of whole",
        ),
        (repair.run, {"subtasks": "ccg-length , nowhere"}, "repair run: task 'nowhere' is unknown"),
        (repair.run, {"subtasks": "ccg-length", "counts": "1,x"}, "repair run: '1,x' is not a list of whole"),
        (repair.run, {"subtasks": "ccg-length", "selectors": "random, luck"}, "selector 'luck' is unknown"),
        (evaluate.run, {"tasks": ["ccg-length, nowhere"], "policies": "base , full_cfg"}, "evaluate: task 'nowhere'"),
        (evaluate.run, {"tasks": ["ccg-length"], "splits": "audit, later"}, "evaluate: prompt set 'later' is unknown"),
    ],
)
def test_commands_read_them_so(command, fields, message, tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended:
        command(out=tmp_path / "out", **fields)
    assert ended.value.exit_code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Settings:
    """What a test asks for."""

    subtasks: tuple[str, ...]
    weight: float = 2.0
    """Strength of guidance."""
    grid: tuple[float, ...] = (0.25, 0.5)
    order: Literal["confidence", "random"] = "confidence"
    gen_length: int | None = None
    batched: bool = True
    left_out: int = 7


def invoke(*arguments):
    seen = []
    app = typer.Typer()

    @app.command("run", cls=Command)
    @from_settings(Settings, "test", leave_out=("left_out",))
    def run(settings: Settings, out: Annotated[str, typer.Option(help="File.")]) -> None:
        """Do it."""
        seen.append((settings, out))

    result = CliRunner().invoke(app, arguments)
    return result, seen


def test_a_dataclass_becomes_options_and_is_given_as_one_object():
    result, seen = invoke(
        "--family", "a,b", "--family", "c", "--out", "x", "--canvas", "8", "--no-batched", "--grid", "1"
    )
    assert result.exit_code == 0, result.output
    assert seen == [(Settings(("a", "b", "c"), grid=(1.0,), gen_length=8, batched=False), "x")]


def test_earlier_names_of_options_are_read_and_not_shown():
    result, seen = invoke("--subtasks", "a", "--weight=3", "--gen-length", "4", "--out", "x")
    assert result.exit_code == 0, result.output
    assert seen == [(Settings(("a",), weight=3.0, gen_length=4), "x")]
    shown = invoke("--help")[0].output
    assert "--guidance-scale" in shown
    assert "Strength of guidance." in shown
    assert "[default: 0.25,0.5]" in shown
    assert "--weight" not in shown
    assert "--left-out" not in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [(["--grid", "x"], "test: 'x' is not a list of numbers"), (["--order", "best"], "test: order 'best' is unknown")],
)
def test_what_a_field_cannot_be_is_said(given, message):
    result, seen = invoke("--family", "a", "--out", "x", *given)
    assert (result.exit_code, seen) == (2, [])
    assert message in result.output


def test_options_after_the_name_of_a_group_are_those_of_its_run():
    app = group("Things.")
    app.command("run")(lambda: typer.echo("ran"))
    app.command("other")(lambda: typer.echo("other"))
    root = typer.Typer()
    root.add_typer(app, name="things")
    assert "Usage" in CliRunner().invoke(root, ["things", "--help"]).output
    assert CliRunner().invoke(root, ["things", "other"]).output == "other\n"
    assert "No such option" in CliRunner().invoke(root, ["things", "--wrong"]).output


def test_every_command_shows_its_help_and_each_option_says_what_it_is_for():
    def commands(command, path=()):
        for name, below in getattr(command, "commands", {}).items():
            yield from commands(below, (*path, name))
        if not hasattr(command, "commands"):
            yield path, command

    seen = dict(commands(typer.main.get_command(cli.app)))
    assert {("census", "run"), ("gate", "audit"), ("train", "mini"), ("evaluate",)} <= set(seen)
    for path, command in seen.items():
        assert command.help, path
        assert [param.name for param in command.params if not param.help] == [], path


def test_every_setting_of_a_server_is_an_option_and_the_help_says_how_its_variable_is_called(monkeypatch):
    command = typer.main.get_command(cli.app).commands["serve"]
    shown = {param.name for param in command.params}
    assert set(config.Settings.model_fields) - shown == {"api_keys"}
    assert "--max-rows as ASTARGATE_MAX_ROWS" in command.help
    monkeypatch.setenv("ASTARGATE_MAX_ROWS", "17")
    assert config.Settings().max_rows == 17
