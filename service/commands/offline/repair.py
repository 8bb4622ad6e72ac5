"""`astargate repair run | report`: what reopening positions of a failed text gains, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.repair_census.settings import RepairCensusSettings
from service.commands.options import MEASUREMENT, OPTIONS, Command, Opt, failures, from_settings, group, writable

app = group("Measure what reopening positions of a failed text gains.")
ReportOption = Annotated[Path | None, typer.Option(help="Write the tables here (default: print them).")]


@app.command("run", cls=Command)
@from_settings(
    RepairCensusSettings,
    "repair run",
    panel=MEASUREMENT,
    options={
        "subtasks": Opt("family", ("subtasks",), panel=OPTIONS["subtasks"].panel, default=("all",), repeated=True),
        "most": Opt("limit", ("most",), minimum=1, shown="all"),
        "seeds": Opt(minimum=1),
        "continuations": Opt(minimum=1),
    },
)
def run(
    settings: RepairCensusSettings,
    out: Annotated[Path, typer.Option(help="File of the census (JSON lines); one that is there is gone on with.")],
    census: Annotated[
        Path | None, typer.Option(help="Folder of a census: its frozen runs are reopened, its horizons used.")
    ] = None,
    report: ReportOption = None,
) -> None:
    """Reopen failed runs by every selector, against a control that reopens nothing (paper, "Repair by Reopening")."""
    from gate_models.offline.repair_census import run as repair_census  # noqa: PLC0415

    writable(out, "--out")
    writable(report, "--report")
    try:
        repair_census.run(settings, out, census)
    except BlockingIOError:
        typer.echo(f"repair run: another process is at {out}", err=True)
        raise typer.Exit(2) from None
    _report(out, report)


@app.command("report", cls=Command)
def tables(
    file: Annotated[Path, typer.Argument(help="File of a repair census, however far it has come.")],
    report: ReportOption = None,
) -> None:
    """The tables of a repair census: gains by selector, beside the paper's."""
    with failures("repair report", ValueError, OSError):
        writable(report, "--report")
        _report(file, report)


def _report(file: Path, report: Path | None) -> None:
    from gate_models.offline.repair_census import report as repair_report  # noqa: PLC0415
    from gate_models.offline.repair_census import store  # noqa: PLC0415

    text = repair_report.report(*store.read_units(file))
    if report is None:
        typer.echo(text)
    else:
        report.write_text(text, encoding="utf-8")
