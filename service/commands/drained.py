"""astargate drained"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Thresholds of the `drained` gate: calibrate, audit, show.", no_args_is_help=True)


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
