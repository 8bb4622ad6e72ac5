"""astargate census-report"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of a census, or its compact form.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    splits: Annotated[int, typer.Option(min=1, help="Half-splits of the cross-fitting.")] = 200,
    digest: Annotated[bool, typer.Option(help="Also print a digest of everything measured.")] = False,
    compact: Annotated[Path | None, typer.Option(help="Write the small form of the census to this folder.")] = None,
) -> None:
    """Fates, horizons and the noninferiority table of a census, however far it has come."""
    from gate_models.offline.census import report as census_report  # noqa: PLC0415
    from gate_models.offline.census import store  # noqa: PLC0415
    from gate_models.offline.census import tables as census_tables  # noqa: PLC0415

    try:
        census = store.load_census(folder, heavy=digest)
        reports = census_report.report(census, splits=splits)
        if compact is not None:
            store.write_compact(census, compact)
    except (ValueError, OSError) as error:
        typer.echo(f"census-report: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        told = census_tables.to_json(census, reports)
        if digest:
            told["digest"] = store.digest(census)
        typer.echo(json.dumps(told, indent=1))
        return
    if not reports:
        typer.echo(f"census-report: no prompt in {folder} has a complete sweep yet", err=True)
    typer.echo(census_tables.to_markdown(census, reports, splits))
    if digest:
        typer.echo(f"digest {store.digest(census)}")
