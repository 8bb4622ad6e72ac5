"""`astargate adapt`: gates for tasks of one's own, from a file of prompts to a folder that a server takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gate_models.offline.adapt.settings import AdaptSettings
from service.commands.options import (
    DECODING,
    FILES,
    MACHINE,
    MEASUREMENT,
    PROMPTS,
    Opt,
    failures,
    from_settings,
    writable,
)

if TYPE_CHECKING:
    from gate_models.offline.adapt.pipeline import Plan
    from gate_models.offline.adapt.tasks import Task


@from_settings(
    AdaptSettings,
    "adapt",
    panel=MEASUREMENT,
    options={"samples": Opt(minimum=1, panel=PROMPTS), "tail_widths": Opt(panel=DECODING)},
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
    from gate_models.offline.adapt.pipeline import StoppedError, adapt  # noqa: PLC0415  (loads torch)
    from gate_models.offline.adapt.tasks import read_tasks  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415

    folder = work or out.with_name(f"{out.name}.work")
    writable(out, "--out", folder=True)
    writable(folder, "--work", folder=True)
    with failures("adapt", ValueError, OSError):
        planned = _planned(read_tasks(tasks), folder, settings, model)
    _ask(planned, processes, yes=yes)
    with failures("adapt", ValueError, OSError, WorkerError):
        try:
            report = adapt(planned, out, processes=processes, say=typer.echo)
        except StoppedError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(130) from None
    typer.echo(f"report: {report}\nserve: astargate serve --model {model} --gates {out}")


def _planned(tasks: Mapping[str, Sequence[Task]], work: Path, settings: AdaptSettings, model: str) -> Plan:
    """The plan, on the canvases that a server gives to requests of these constraints."""
    from decoding.constraints import Constraint  # noqa: PLC0415
    from decoding.models.registry import load_model  # noqa: PLC0415
    from gate_models.offline.adapt.pipeline import make_plan  # noqa: PLC0415
    from service.generation.canvas import fitting_canvas  # noqa: PLC0415
    from service.generation.request import CanvasRequest  # noqa: PLC0415
    from service.http.errors import ApiError  # noqa: PLC0415

    loaded = load_model(model)

    def canvas_of(constraint: Constraint) -> int:
        try:
            return fitting_canvas(CanvasRequest(), constraint, loaded.codec, loaded.spec).gen_length
        except ApiError as error:
            raise ValueError(str(error)) from None

    return make_plan(tasks, work, settings, loaded, model, canvas_of)


def _ask(planned: Plan, processes: int, *, yes: bool) -> None:
    """Say what it takes, and end the command where nobody agrees."""
    for family, prompts in planned.prompts.items():
        typer.echo(f"{family}: {len(prompts)} different tasks, canvas of {prompts[0].gen_length} tokens")
    typer.echo(
        f"about {planned.rows} forward evaluations at {planned.rows_per_second:.0f} a second and process: "
        f"{planned.minutes(processes):.0f} minutes with {processes} processes, and a minute or two of training a family"
    )
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo("adapt: nobody is there to ask; give --yes to begin", err=True)
        raise typer.Exit(2)
    typer.confirm("Begin?", abort=True)
