"""`astargate gate ...`: the gates that end guidance, from training to their audit in service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from decoding.constraints.text.suggestion import suggestion
from gate_models.offline.gate_audit.settings import AuditSettings
from gate_models.offline.gate_training.settings import ConstantPlan, GateTrainSettings
from service.commands.options import (
    DECODING,
    MACHINE,
    MEASUREMENT,
    OPTIONS,
    PROMPTS,
    Command,
    Opt,
    earlier_names,
    failures,
    from_settings,
    group,
    names,
    wholes,
    writable,
)

app = group("Train, list, show and audit the gates that end guidance.")
FolderOption = Annotated[
    Path | None, typer.Option(help="Folder of gates, one subfolder a family (default: the shipped ones).")
]


@app.command("train", cls=Command)
@earlier_names(families="family")
@from_settings(GateTrainSettings, "error", panel=MEASUREMENT, code=1)
def train(
    settings: GateTrainSettings,
    census: Annotated[Path, typer.Option(help="Folder of a census (astargate census), whole or compact.")],
    out: Annotated[Path, typer.Option(help="Folder for the gates, one subfolder a family.")],
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="Families, separated by commas or given again (default: all in it).", rich_help_panel=PROMPTS
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model of the census, where it lies elsewhere now.", rich_help_panel=MACHINE),
    ] = None,
) -> None:
    """Train one gate a family from a census: constant cuts, fate and ordinal heads, value heads, risk settings."""
    from gate_models.gates.sources import held_sources  # noqa: PLC0415
    from gate_models.offline.gate_training.train import train as fit  # noqa: PLC0415

    families = None if not family else [name for given in family for name in names(given)]
    writable(out, "--out", folder=True)
    for bundle in fit(census, out, settings, families=families, model=model):
        typer.echo(_line(bundle.family, bundle.version, held_sources(bundle), out / bundle.family))


@app.command("list", cls=Command)
def list_gates(folder: FolderOption = None) -> None:
    """One line a gate; those that must not be used, with the reason."""
    from gate_models.gates import shipped  # noqa: PLC0415
    from gate_models.gates.learned import artifact  # noqa: PLC0415
    from gate_models.gates.sources import held_sources  # noqa: PLC0415

    where = folder or shipped.shipped_folder()
    bundles, refused = artifact.load_all(where)
    for bundle in bundles:
        typer.echo(_line(bundle.family, bundle.version, held_sources(bundle), where / bundle.family))
    for _, reason in refused:
        typer.echo(f"refused: {reason}", err=True)
    if not bundles and not refused:
        typer.echo(f"no gates in {where}; astargate gate train makes them from a census", err=True)


@app.command("show", cls=Command)
def show(
    family: Annotated[str, typer.Argument(help="Family, such as commongen-k3.")],
    folder: FolderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The stored description as it is.")] = False,
) -> None:
    """What one gate is made of, where it holds and what its risk source promises."""
    from gate_models.gates import shipped  # noqa: PLC0415
    from gate_models.gates.learned import artifact  # noqa: PLC0415
    from gate_models.gates.sources import held_sources  # noqa: PLC0415

    where = (folder or shipped.shipped_folder()) / family
    with failures("gate show", ValueError):
        if not where.is_dir():
            held = sorted(path.parent.name for path in where.parent.glob(f"*/{artifact.DESCRIPTION}"))
            raise ValueError(f"there is no gate of {family!r}{suggestion(family, held)}; families: {', '.join(held)}")
    with failures("gate show", artifact.ArtifactError, code=1):
        bundle = artifact.load(where)
    if as_json:
        typer.echo((where / artifact.DESCRIPTION).read_text(encoding="utf-8"))
        return
    typer.echo(_line(bundle.family, bundle.version, held_sources(bundle), where))
    typer.echo(f"audited: {json.dumps(bundle.regime.to_json())}")
    typer.echo(f"checkpoints: {', '.join(f'{f:g}' for f in bundle.checkpoints)}")
    for width, cut in bundle.constants.items():
        typer.echo(f"constant cut at K = {width}: {'never' if cut is None else f'{cut:g}'}")
    for width, test in bundle.risk_tests.items():
        for margin in (0.01, 0.03, 0.05, 0.12):
            choice = test.choose(margin, 0.95)
            promised = choice.refusal if choice.setting is None else f"no handoff before {choice.setting[0]:g}"
            typer.echo(f"risk at K = {width}, margin {margin:g}, 95 %: {promised}")
    shown = {name: bundle.evidence[name] for name in ("prompts", "rollouts", "fates", "horizons", "notes", "data_hash")}
    typer.echo(f"evidence: {json.dumps(shown)}")


@app.command("audit", cls=Command)
@from_settings(AuditSettings, "error", panel=MEASUREMENT, code=1)
def audit(
    settings: AuditSettings,
    out: Annotated[Path, typer.Option(help="Folder for tables, plots and the sweep; what is there is resumed.")],
    folder: FolderOption = None,
    census: Annotated[
        Path | None, typer.Option(help="The gates' census: adds the measured horizon, survivors and accuracy.")
    ] = None,
    compact: Annotated[
        Path | None, typer.Option(help="Afterwards write what a server shows beside the gates in this folder.")
    ] = None,
) -> None:
    """Compare every gate source on fresh trajectories of prompts that trained nothing; write tables and plots."""
    from gate_models.gates import shipped  # noqa: PLC0415
    from gate_models.offline.gate_audit.export import export  # noqa: PLC0415
    from gate_models.offline.gate_audit.run import audit as run  # noqa: PLC0415
    from gate_models.offline.gate_audit.run import summary  # noqa: PLC0415

    writable(out, "--out", folder=True)
    writable(compact, "--compact", folder=True)
    with failures("error", OSError, code=1):
        content = run(settings, folder or shipped.shipped_folder(), out, census)
        written = [] if compact is None else export(content, compact)
    typer.echo(summary(content, 8 if 8 in settings.widths else settings.widths[-1]))
    typer.echo(f"tables and plots: {out}")
    if compact is not None:
        typer.echo(f"{len(written)} reports beside the gates in {compact}")


@app.command("pairs", cls=Command)
def pairs(
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
    from service.storage.database import open_database  # noqa: PLC0415
    from service.storage.errors import DatabaseError  # noqa: PLC0415

    if out.suffix not in FORMATS:
        typer.echo(f"error: --out must end in {' or '.join(FORMATS)}", err=True)
        raise typer.Exit(2)
    with failures("error", DatabaseError, OSError, code=1):
        opened = open_database(database)
        try:
            count = export(opened, out, families=family or (), versions=version or ())
        finally:
            opened.close()
    typer.echo(f"{count} pairs in {out}")


@app.command("constant", cls=Command)
@from_settings(
    ConstantPlan,
    "error",
    code=1,
    options={
        "widths": OPTIONS["widths"],
        "skip": Opt(minimum=0, panel=PROMPTS),
        "guidance_scale": Opt(panel=DECODING),
        "margin": Opt(panel=MEASUREMENT),
    },
)
def constant(
    settings: ConstantPlan,
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.", rich_help_panel=MACHINE)] = "mini",
    threads: Annotated[int, typer.Option(min=1, help="Torch threads of a process.", rich_help_panel=MACHINE)] = 1,
) -> None:
    """Measure the constant cut of each family: the earliest handoff that keeps full CFG's success from there on."""
    from decoding.models.compute import compute_mode  # noqa: PLC0415
    from decoding.models.registry import load_model  # noqa: PLC0415
    from gate_models.gates.calibrated.constant import write_cuts  # noqa: PLC0415
    from gate_models.offline.gate_training.calibrate_constant import calibrate  # noqa: PLC0415

    writable(out, "--out")
    with compute_mode(threads):
        cuts = calibrate(load_model(model), settings)
    write_cuts(cuts, out)
    for cut in cuts:
        typer.echo(f"{cut.regime.family} K={cut.regime.tail_width} {cut.fraction} {cut.evidence}")


@app.command("power", cls=Command)
def power(
    streams: Annotated[int, typer.Option(min=1, help="Streams of pairs that are drawn.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the streams.")] = 0,
) -> None:
    """How many audited pairs a served gate needs before its monitor certifies, suspends or restores it."""
    from gate_models.offline.gate_audit.monitor_power import table  # noqa: PLC0415

    typer.echo(table(streams, seed))


@app.command("tables", cls=Command)
@earlier_names(widths="tail-widths", gates="folder")
def tables(
    folder: FolderOption = None,
    tail_widths: Annotated[
        str, typer.Option(help="Tail widths separated by commas.", rich_help_panel=DECODING)
    ] = "1,8",
) -> None:
    """The tables of docs/results/gate-audit from the audit reports beside the gates."""
    from gate_models.gates import shipped  # noqa: PLC0415
    from gate_models.offline.gate_audit.summary_tables import summary_tables  # noqa: PLC0415

    with failures("error", ValueError, code=1):
        typer.echo(summary_tables(folder or shipped.shipped_folder(), wholes(tail_widths)))


def _line(family: str, version: str, sources: tuple[str, ...], where: Path) -> str:
    return f"{family}  {version}  {', '.join(sources)}  {where}"
