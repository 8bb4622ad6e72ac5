"""`astargate census run | report | one-factor`: the success of every continuation, measured along guided runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.census.settings import CensusSettings
from service.commands.options import (
    MACHINE,
    MEASUREMENT,
    Command,
    earlier_names,
    failures,
    from_settings,
    group,
    numbers,
    wholes,
    writable,
)

app = group("Measure how likely a text is to succeed, at every point where its guidance could end.")

Workers = Annotated[int, typer.Option(min=1, help="Worker processes.", rich_help_panel=MACHINE)]
Shard = Annotated[
    int, typer.Option(min=1, help="Prompts that a worker takes and writes at a time.", rich_help_panel=MACHINE)
]
GOES_ON = "what is finished is kept: put that right and run the same command again"


@app.command("run", cls=Command)
@from_settings(CensusSettings, "census", panel=MEASUREMENT)
def run(
    settings: CensusSettings,
    out: Annotated[Path, typer.Option(help="Folder of the census; one that is there is resumed or grown.")],
    compact: Annotated[Path | None, typer.Option(help="Afterwards write the small form to this folder.")] = None,
    workers: Workers = 1,
    shard: Shard = 2,
) -> None:
    """Measure committors along recorded guided runs: every prompt x grid point x arm x N rollouts."""
    from gate_models.offline.census import run as census  # noqa: PLC0415
    from gate_models.offline.census import store  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415

    try:
        if compact is not None:
            store.check_compact(compact, out)
        writable(compact, "--compact", folder=True)
        with failures("census", WorkerError):
            finished = census.run(settings, out, workers=workers, shard=shard)
        if compact is not None and not finished.stopped:
            store.write_compact(store.load_census(out, heavy=False), compact)
    except OSError as error:
        typer.echo(f"census: {error}; {GOES_ON}", err=True)
        raise typer.Exit(2) from None
    speed = finished.rows / finished.seconds if finished.seconds else 0.0
    typer.echo(f"{finished.prompts} prompts, {finished.rows} forward evaluations, {speed:.0f} a second")
    if finished.stopped:
        typer.echo(f"stopped with {finished.left} prompts left; run the same command again to go on", err=True)
        raise typer.Exit(130)
    typer.echo(f"complete: astargate census report {out}")


@app.command("report", cls=Command)
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a census, or its compact form.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    splits: Annotated[int, typer.Option(min=1, help="Half-splits of the cross-fitting.")] = 200,
    digest: Annotated[bool, typer.Option(help="Also print a digest of everything measured.")] = False,
    compact: Annotated[Path | None, typer.Option(help="Write the small form of the census to this folder.")] = None,
) -> None:
    """Fates, horizons and the noninferiority table of a census, however far it has come."""
    from gate_models.offline.census import report as census_report  # noqa: PLC0415
    from gate_models.offline.census import store, tables  # noqa: PLC0415

    with failures("census report", ValueError, OSError):
        census = store.load_census(folder, heavy=digest)
        reports = census_report.report(census, splits=splits)
        if compact is not None:
            store.write_compact(census, compact)
    if as_json:
        content = tables.to_json(census, reports)
        if digest:
            content["digest"] = store.digest(census)
        typer.echo(json.dumps(content, indent=1))
        return
    if not reports:
        typer.echo(f"census report: no prompt in {folder} has a complete sweep yet", err=True)
    typer.echo(tables.to_markdown(census, reports, splits))
    if digest:
        typer.echo(f"digest {store.digest(census)}")


@app.command("one-factor", cls=Command)
@earlier_names(weights="guidance-scales", lengths="canvases")
@from_settings(
    CensusSettings,
    "census one-factor",
    leave_out=(
        *("repeats", "extra_weights", "grid", "extra_grid", "tail_widths", "sweep", "switch", "gen_length", "steps"),
        *("temperature", "block_length", "order", "guided_width", "coupling", "invariant"),
    ),
)
def one_factor(
    settings: CensusSettings,
    out: Annotated[Path, typer.Option(help="Folder; each configuration is a census in a folder of its own.")],
    guidance_scales: Annotated[
        str, typer.Option(help="Axis of the guidance scale, such as 0.5,1,4.", rich_help_panel=MEASUREMENT)
    ] = "",
    canvases: Annotated[
        str, typer.Option(help="Axis of the canvas, such as 16,32,48.", rich_help_panel=MEASUREMENT)
    ] = "",
    steps: Annotated[str, typer.Option(help="Axis of the steps, such as 8,16,32.", rich_help_panel=MEASUREMENT)] = "",
    workers: Workers = 1,
    shard: Shard = 2,
) -> None:
    """Fates and horizons one factor at a time: guidance scale, canvas, steps. Resumable like the census."""
    from dataclasses import replace  # noqa: PLC0415

    from gate_models.offline.census import one_factor as factors  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415

    with failures("census one-factor", OSError, WorkerError):
        configured = factors.configurations(
            replace(settings, repeats=1, extra_weights=()),
            weights=numbers(guidance_scales),
            lengths=wholes(canvases),
            steps=wholes(steps),
        )
        finished = factors.run(configured, out, workers=workers, shard=shard)
    typer.echo(factors.to_markdown(factors.rows(out)))
    if any(configuration.stopped for configuration in finished.values()):
        typer.echo("stopped; run the same command again to go on", err=True)
        raise typer.Exit(130)
