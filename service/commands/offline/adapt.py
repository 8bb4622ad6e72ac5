"""`astargate adapt`: gates for tasks of one's own, from a file of prompts to a folder that a server takes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.adapt.settings import AdaptSettings
from service.commands.options import (
    DECODING,
    FILES,
    MACHINE,
    MEASUREMENT,
    OPTIONS,
    PROMPTS,
    Opt,
    failures,
    from_settings,
    writable,
)


@from_settings(
    AdaptSettings,
    "adapt",
    panel=MEASUREMENT,
    options={
        "samples": Opt(minimum=1, panel=PROMPTS),
        "tail_widths": Opt(panel=DECODING),
        "gen_length": replace(OPTIONS["gen_length"], shown="what a request gets"),
    },
)
def run(
    settings: AdaptSettings,
    tasks: Annotated[
        Path, typer.Argument(help="JSONL file: prompt, constraint and family of one task a line.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the gates and the report.", rich_help_panel=FILES)],
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder for what is measured; a stopped run goes on there. (default: OUT.work)",
            rich_help_panel=FILES,
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the work begins.")] = False,
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.", rich_help_panel=MACHINE)] = "mini",
    processes: Annotated[int, typer.Option(min=1, help="Processes of the census.", rich_help_panel=MACHINE)] = 1,
) -> None:
    """Make gates for your own tasks: measure, train, audit, and say in plain words which to serve.

    It says how long it will take, and asks. `astargate serve --gates OUT` serves the gates; requests name the family.
    """
    from decoding.models.registry import load_model  # noqa: PLC0415  (loads torch)
    from gate_models.offline.adapt.pipeline import StoppedError, adapt, make_plan  # noqa: PLC0415
    from gate_models.offline.adapt.tasks import read_tasks  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415
    from service.generation.canvas import usual_canvas  # noqa: PLC0415

    folder = work or out.with_name(f"{out.name}.work")
    writable(out, "--out", folder=True)
    writable(folder, "--work", folder=True)
    with failures("adapt", ValueError, OSError):
        read = read_tasks(tasks)
        loaded = load_model(model)
        planned = make_plan(read, folder, settings, loaded, model, lambda asked: usual_canvas(asked, loaded))
    typer.echo(planned.described(processes))
    _ask(yes=yes)
    with failures("adapt", ValueError, OSError, WorkerError):
        try:
            report = adapt(planned, out, processes=processes, say=typer.echo)
        except StoppedError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(130) from None
    typer.echo(f"report: {report}\nserve: astargate serve --model {model} --gates {out}")


def _ask(*, yes: bool) -> None:
    """End the command where nobody agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo("adapt: nobody is there to ask; give --yes to begin", err=True)
        raise typer.Exit(2)
    typer.confirm("Begin?", abort=True)
