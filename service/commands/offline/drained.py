"""`astargate drained calibrate | policies | audit | table | pooled`: thresholds of the gate that needs no training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.drained.settings import CalibrationSettings, PooledSettings
from service.commands.options import (
    DECODING,
    MACHINE,
    MEASUREMENT,
    OPTIONS,
    PROMPTS,
    Command,
    Opt,
    failures,
    from_settings,
    group,
    writable,
)

app = group("Thresholds of the `drained` gate: calibrate, audit, show.")


@app.command("calibrate", cls=Command)
@from_settings(
    CalibrationSettings,
    "drained calibrate",
    panel=DECODING,
    options={
        "tasks": replace(OPTIONS["tasks"], old=("families", "task", "tasks"), default=("all",)),
        "prompts": Opt(minimum=1, panel=PROMPTS, help="Prompts of a family outside the audit set."),
    },
)
def calibrate(
    settings: CalibrationSettings,
    sweeps: Annotated[Path, typer.Option(help="Folder of the decoded runs; a stopped run goes on.")],
    out: Annotated[Path | None, typer.Option(help="File to write, beside what it has; without it only decode.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Decode nothing: the prompts whose runs are there.")] = False,
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.", rich_help_panel=MACHINE)] = "mini",
    threads: Annotated[int, typer.Option(min=1, help="Torch threads of a process.", rich_help_panel=MACHINE)] = 1,
) -> None:
    """Choose the thresholds from runs on prompts outside the audit set."""
    from gate_models.offline.drained.calibrate import run  # noqa: PLC0415

    if held:
        settings = replace(settings, prompts=None)
    with failures("drained calibrate", OSError):
        thresholds = run(settings, sweeps, out, model=model, threads=threads)
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
    from gate_models.gates.calibrated.files import shipped_file  # noqa: PLC0415
    from gate_models.offline.drained.audit import run, table  # noqa: PLC0415

    with failures("drained audit", OSError, ValueError, KeyError):
        checked = run(results, thresholds or shipped_file("drained.json"))
    typer.echo(table(checked))


@app.command("table")
def table(
    thresholds: Annotated[Path | None, typer.Argument(help="File of thresholds (default: the shipped one).")] = None,
    pooled: Annotated[bool, typer.Option("--pooled", help="The pooled ones, model by model.")] = False,
) -> None:
    """Print the calibrated thresholds as a table, a family a line."""
    from gate_models.gates.calibrated.drained import read_thresholds  # noqa: PLC0415
    from gate_models.gates.calibrated.files import shipped_file  # noqa: PLC0415
    from gate_models.gates.calibrated.pooled import FILE, read_pooled  # noqa: PLC0415
    from gate_models.offline.drained.table import pooled_tables, table  # noqa: PLC0415

    with failures("drained table", OSError, ValueError):
        if pooled:
            typer.echo(pooled_tables(read_pooled(thresholds or shipped_file(FILE))))
        else:
            typer.echo(table(read_thresholds(thresholds or shipped_file("drained.json"))))


@app.command("pooled", cls=Command)
@from_settings(
    PooledSettings,
    "drained pooled",
    panel=DECODING,
    options={
        "tasks": replace(OPTIONS["tasks"], old=("families", "task", "tasks")),
        "pairs": Opt(minimum=40, panel=MEASUREMENT),
        "templates": Opt(minimum=0, panel=MEASUREMENT),
        "margin": Opt(panel=MEASUREMENT),
    },
)
def pooled(
    settings: PooledSettings,
    out: Annotated[
        Path | None, typer.Option(help="File to write, beside other models' (default: the shipped one).")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="File of the decoded runs; a stopped run goes on.")] = None,
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.", rich_help_panel=MACHINE)] = "mini",
    threads: Annotated[int, typer.Option(min=1, help="Torch threads of a process.", rich_help_panel=MACHINE)] = 1,
) -> None:
    """Measure the threshold of requests that no other gate fits: one for a model, over many settings at once.

    For `mini` about sixteen minutes of one core (a second a pair), a larger model takes longer. With --pairs 200 it is
    a fifth of that, and a gate that saves less: fewer pairs show less. A server reads `pooled.json` in the folder of
    its --gates.
    """
    from gate_models.offline.drained.pooled import run  # noqa: PLC0415
    from gate_models.offline.drained.table import pooled_table  # noqa: PLC0415

    writable(out, "--out")
    writable(runs, "--runs")
    with failures("drained pooled", OSError):
        chosen = run(settings, model=model, out=out, runs=runs, threads=threads)
    typer.echo(pooled_table(chosen))
