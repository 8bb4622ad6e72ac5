"""astargate gate pairs"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    out: Annotated[Path, typer.Option(help="File to write: .jsonl, or .parquet.")],
    database: Annotated[
        str | None,
        typer.Option(help="The servers' database, as --database of `astargate serve`.", envvar="ASTARGATE_DATABASE"),
    ] = None,
    family: Annotated[list[str] | None, typer.Option(help="Family; may be given again (default: all).")] = None,
    version: Annotated[list[str] | None, typer.Option(help="Gate version; may be given again (default: all).")] = None,
) -> None:
    """Export the shadow audit's pairs: state at the handoff, what the gate saw, both texts and verdicts."""
    from service.shadow_audit.export import FORMATS, export  # noqa: PLC0415
    from service.storage.database import DatabaseError, open_database  # noqa: PLC0415

    if out.suffix not in FORMATS:
        typer.echo(f"error: --out must end in {' or '.join(FORMATS)}", err=True)
        raise typer.Exit(2)
    try:
        opened = open_database(database)
        try:
            count = export(opened, out, families=family or (), versions=version or ())
        finally:
            opened.close()
    except (DatabaseError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{count} pairs in {out}")
