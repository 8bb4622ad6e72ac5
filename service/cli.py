"""The console command `astargate`. Each command is a module of `service.commands`; none loads torch before it runs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from service.commands import key, models, random_model, savings, serve
from service.commands.offline import (
    adapt,
    bench,
    card,
    census,
    deployment,
    drained,
    evaluate,
    gate,
    judge,
    order_study,
    repair,
    train,
)
from service.commands.options import Command
from service.commands.run import command as run_command
from service.config.version import package_version

SERVING: Final = "Serve and use"
GATES: Final = "Gates"
STUDIES: Final = "Measure and compare"
BUILDING: Final = "Build what ships"
PANELS: Final[dict[object, int]] = {SERVING: 0, GATES: 1, STUDIES: 2, BUILDING: 3}


def _panel_of(command: object) -> object:
    """The heading of a command; typer's types do not say that it has one."""
    return getattr(command, "rich_help_panel", None)


class _Root(TyperGroup):
    """All commands, by the headings of the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Typer lists groups after commands; a reader looks for a heading."""
        return sorted(self.commands, key=lambda name: PANELS.get(_panel_of(self.commands[name]), len(PANELS)))


app = typer.Typer(
    cls=_Root,
    name="astargate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"astargate {package_version()}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve masked diffusion language models with guidance that ends as soon as it stops paying."""


app.command("serve", rich_help_panel=SERVING)(serve.run)
app.command("run", cls=Command, rich_help_panel=SERVING)(run_command.run)
app.add_typer(models.app, name="models", rich_help_panel=SERVING)
app.add_typer(key.app, name="key", rich_help_panel=SERVING)

app.command("adapt", cls=Command, rich_help_panel=GATES)(adapt.run)
app.command("savings", rich_help_panel=GATES)(savings.run)
app.add_typer(gate.app, name="gate", rich_help_panel=GATES)
app.add_typer(drained.app, name="drained", rich_help_panel=GATES)

app.add_typer(census.app, name="census", rich_help_panel=STUDIES)
app.command("evaluate", cls=Command, rich_help_panel=STUDIES)(evaluate.run)
app.add_typer(repair.app, name="repair", rich_help_panel=STUDIES)
app.add_typer(deployment.app, name="deployment", rich_help_panel=STUDIES)
app.add_typer(order_study.app, name="order-study", rich_help_panel=STUDIES)
app.command("bench", cls=Command, rich_help_panel=STUDIES)(bench.run)
app.command("bench-precision", rich_help_panel=STUDIES)(bench.precision)

app.command("judge", rich_help_panel=STUDIES)(judge.run)
app.command("judge-fit", rich_help_panel=BUILDING)(judge.fit)
app.command("judge-sheet", rich_help_panel=BUILDING)(judge.sheet)
app.command("label", rich_help_panel=BUILDING)(judge.label)
app.add_typer(train.app, name="train", rich_help_panel=BUILDING)
app.command("random-model", rich_help_panel=SERVING)(random_model.run)
app.command("sizing", rich_help_panel=SERVING)(bench.sizing)
app.command("build-prompts", rich_help_panel=BUILDING)(card.build_prompts)
app.command("card", rich_help_panel=BUILDING)(card.run)

# Other and earlier names of commands.
app.command("generate", cls=Command, hidden=True)(run_command.run)
app.command("census-report", cls=Command, hidden=True)(census.report)
app.command("census-ofat", cls=Command, hidden=True)(census.one_factor)
app.command("repair-census", cls=Command, hidden=True)(repair.run)
app.command("train-mini", cls=Command, hidden=True)(train.mini)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
