"""astargate repair-census"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import (
    BatchInvariant,
    MaxRows,
    Model,
    PromptsASubtask,
    Subtasks,
    names,
    wholes,
    writable,
)


def run(
    out: Annotated[Path, typer.Option(help="File of the census (JSON lines); one that is there is gone on with.")],
    subtasks: Subtasks = "all",
    prompts: PromptsASubtask = None,
    census: Annotated[
        Path | None, typer.Option(help="Folder of a census: its frozen runs are reopened, its horizons used.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Most runs a subtask and population to intervene on (default: all).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Recorded runs of a prompt that the census lacks.")] = 2,
    continuations: Annotated[int, typer.Option(min=1, help="Continuations an arm, and rollouts a cell.")] = 10,
    counts: Annotated[str, typer.Option(help="Reopened positions K.")] = "1,3",
    selectors: Annotated[str, typer.Option(help="Selectors (default: the paper's and our own).")] = "",
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    weight: Annotated[float, typer.Option(help="Guidance scale.")] = 2.0,
    model: Model = "mini",
    device: Annotated[str, typer.Option()] = "cpu",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    max_rows: MaxRows = 64,
    batch_invariant: BatchInvariant = True,
    report: Annotated[Path | None, typer.Option(help="Write the tables here (default: print them).")] = None,
) -> None:
    """Reopen failed runs by every selector, against a control that reopens nothing (paper, "Repair by Reopening")."""
    from gate_models.offline.repair_census import report as repair_report  # noqa: PLC0415
    from gate_models.offline.repair_census import run as repair_census  # noqa: PLC0415
    from gate_models.offline.repair_census import store  # noqa: PLC0415
    from gate_models.offline.repair_census.settings import ADDED_SELECTORS, PAPER_SELECTORS, RepairSettings  # noqa: PLC0415

    try:
        settings = RepairSettings(
            subtasks=names(subtasks),
            prompts=prompts,
            seeds=seeds,
            continuations=continuations,
            counts=wholes(counts),
            selectors=names(selectors) if selectors else (*PAPER_SELECTORS, *ADDED_SELECTORS),  # type: ignore[arg-type]
            most=most,
            seed=seed,
            weight=weight,
            model=model,
            device=device,
            threads=threads,
            max_rows=max_rows,
            invariant=batch_invariant,
        )
        writable(out, "--out")
        writable(report, "--report")
        repair_census.run(settings, out, census)
        text = repair_report.report(*store.read_units(out))
    except BlockingIOError:
        typer.echo(f"repair-census: another process is at {out}", err=True)
        raise typer.Exit(2) from None
    except ValueError as error:
        typer.echo(f"repair-census: {error}", err=True)
        raise typer.Exit(2) from None
    if report is None:
        typer.echo(text)
    else:
        report.write_text(text, encoding="utf-8")
