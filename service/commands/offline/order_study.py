"""`astargate order-study policies | report`: the orders in which tokens are committed, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import failures, group

app = group("Compare the orders in which tokens are committed, at the same cost.")


@app.command("policies")
def policies(
    name: Annotated[str, typer.Argument(help="main, calibrated, cheap, gates, factors, switch or ablations.")],
) -> None:
    """Print the policies of a list, for `astargate evaluate --policies`."""
    from gate_models.offline.order_study.policies import LISTS  # noqa: PLC0415

    if name not in LISTS:
        typer.echo(f"order-study policies: list {name!r} is unknown; lists: {', '.join(LISTS)}", err=True)
        raise typer.Exit(2)
    typer.echo(",".join(LISTS[name]))


@app.command("report")
def report(
    result: Annotated[list[Path], typer.Option(help="Of the lists main, calibrated, cheap and gates; one each.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    recorded: Annotated[list[Path] | None, typer.Option(help="Of policy recorded, on prompts of a census.")] = None,
    factors: Annotated[list[Path] | None, typer.Option(help="Of the list factors, one factor moved in each.")] = None,
    switch: Annotated[list[Path] | None, typer.Option(help="Of the list switch.")] = None,
    ablations: Annotated[list[Path] | None, typer.Option(help="Of the list ablations, whole and --without.")] = None,
    command: Annotated[list[str] | None, typer.Option(help="How a result was made, for the report.")] = None,
) -> None:
    """Write the report, its numbers and its plots from results of `astargate evaluate`; options may be repeated."""
    from gate_models.offline.order_study.report import matched_table  # noqa: PLC0415
    from gate_models.offline.order_study.run import StudySettings, run  # noqa: PLC0415

    settings = StudySettings(
        result=tuple(result),
        out=out,
        recorded=tuple(recorded or ()),
        factors=tuple(factors or ()),
        switch=tuple(switch or ()),
        ablations=tuple(ablations or ()),
        command=tuple(command or ()),
    )
    with failures("order-study report", OSError, ValueError):
        study = run(settings)
    typer.echo(matched_table(study.groups))
