"""astargate drained"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import names

app = typer.Typer(help="Thresholds of the `drained` gate: calibrate, audit, show.", no_args_is_help=True)


@app.command("calibrate")
def calibrate(
    sweeps: Annotated[Path, typer.Option(help="Folder of the decoded runs; a stopped run goes on.")],
    out: Annotated[Path | None, typer.Option(help="File to write, beside what it has; without it only decode.")] = None,
    families: Annotated[str, typer.Option(help="Families separated by commas, or `all`.")] = "all",
    held: Annotated[bool, typer.Option("--held", help="Decode nothing: the prompts whose runs are there.")] = False,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a family outside the audit set.")] = 100,
    guidance_scale: Annotated[float, typer.Option()] = 2.0,
    temperature: Annotated[float, typer.Option()] = 1.0,
) -> None:
    """Choose the thresholds from runs on prompts outside the audit set."""
    from gate_models.offline.drained.calibrate import run  # noqa: PLC0415
    from gate_models.offline.drained.settings import CalibrationSettings  # noqa: PLC0415

    settings = CalibrationSettings(
        names(families),
        None if held else prompts,
        guidance_scale=guidance_scale,
        temperature=temperature,
    )
    try:
        thresholds = run(settings, sweeps, out)
    except (OSError, ValueError) as error:
        typer.echo(f"drained calibrate: {error}", err=True)
        raise typer.Exit(2) from None
    for one in thresholds:
        regime = one.regime
        typer.echo(f"{regime.family} {regime.order} K={regime.tail_width} {one.threshold} {one.certified}")


@app.command("policies")
def policies() -> None:
    """Print the policies that an audit decodes, for `astargate evaluate --policies`."""
    from gate_models.offline.drained.audit import policies  # noqa: PLC0415

    typer.echo(",".join(policies()))


@app.command("audit")
def audit(
    results: Annotated[list[Path], typer.Argument(help="Of `astargate evaluate --split audit --out`.")],
    thresholds: Annotated[
        Path | None, typer.Option(help="File of thresholds to write into (default: the shipped one).")
    ] = None,
) -> None:
    """Write into each threshold what it lost on audit prompts, and print that as a table."""
    from gate_models.gates.calibrated import shipped_file  # noqa: PLC0415
    from gate_models.offline.drained.audit import run, table  # noqa: PLC0415

    try:
        checked = run(results, thresholds or shipped_file("drained.json"))
    except (OSError, ValueError, KeyError) as error:
        typer.echo(f"drained audit: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(table(checked))


@app.command("table")
def table(
    thresholds: Annotated[Path | None, typer.Argument(help="File of thresholds (default: the shipped one).")] = None,
) -> None:
    """Print the calibrated thresholds as a table, a family a line."""
    from gate_models.gates.calibrated import shipped_file  # noqa: PLC0415
    from gate_models.gates.drained import read_thresholds  # noqa: PLC0415
    from gate_models.offline.drained.table import table  # noqa: PLC0415

    try:
        typer.echo(table(read_thresholds(thresholds or shipped_file("drained.json"))))
    except (OSError, ValueError) as error:
        typer.echo(f"drained table: {error}", err=True)
        raise typer.Exit(2) from None
