"""astargate gate train | list | show | audit | pairs"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from service.commands import gate_pairs
from service.commands.options import names, wholes, writable

app = typer.Typer(help="Train, list, show and audit the gates that end guidance.", no_args_is_help=True)
FolderOption = Annotated[
    Path | None, typer.Option(help="Folder of gates, one subfolder a family (default: the shipped ones).")
]
app.command("pairs")(gate_pairs.run)


@app.command("train")
def train(
    census: Annotated[Path, typer.Option(help="Folder of a census (astargate census), whole or compact.")],
    out: Annotated[Path, typer.Option(help="Folder for the gates, one subfolder a family.")],
    families: Annotated[str | None, typer.Option(help="Families separated by commas (default: all in it).")] = None,
    model: Annotated[str | None, typer.Option(help="The census's model, where it lies elsewhere now.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the forests.")] = 0,
    trees: Annotated[int, typer.Option(min=10, help="Trees of the fate and ordinal heads.")] = 400,
    jobs: Annotated[int, typer.Option(min=1, help="Threads that grow trees.")] = 1,
) -> None:
    """Train one gate a family from a census: constant cuts, fate and ordinal heads, value heads, risk ladders."""
    from gate_models.offline.census.records import CensusError  # noqa: PLC0415
    from gate_models.offline.gate_training.settings import TrainSettings  # noqa: PLC0415
    from gate_models.offline.gate_training.train import train as fit  # noqa: PLC0415

    try:
        named = None if families is None else names(families)
        writable(out, "--out", folder=True)
        bundles = fit(census, out, TrainSettings(seed, trees, jobs), families=named, model=model)
    except (CensusError, ValueError) as error:
        raise _failed(error) from None
    for bundle in bundles:
        typer.echo(_line(bundle.family, bundle.version, bundle.sources, out / bundle.family))


@app.command("list")
def list_gates(folder: FolderOption = None) -> None:
    """One line a gate; those that must not be used, with the reason."""
    from gate_models.gates import artifact, learned_resolver  # noqa: PLC0415

    where = folder or learned_resolver.shipped_folder()
    bundles, refused = artifact.load_all(where)
    for bundle in bundles:
        typer.echo(_line(bundle.family, bundle.version, bundle.sources, where / bundle.family))
    for _, reason in refused:
        typer.echo(f"refused: {reason}", err=True)
    if not bundles and not refused:
        typer.echo(f"no gates in {where}; astargate gate train makes them from a census", err=True)


@app.command("show")
def show(
    family: Annotated[str, typer.Argument(help="Family, such as commongen-k3.")],
    folder: FolderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The stored description as it is.")] = False,
) -> None:
    """What one gate is made of, where it holds and what its risk source promises."""
    from gate_models.gates import artifact, learned_resolver  # noqa: PLC0415

    where = (folder or learned_resolver.shipped_folder()) / family
    try:
        bundle = artifact.load(where)
    except artifact.ArtifactError as error:
        raise _failed(error) from None
    if as_json:
        typer.echo((where / artifact.DESCRIPTION).read_text(encoding="utf-8"))
        return
    typer.echo(_line(bundle.family, bundle.version, bundle.sources, where))
    typer.echo(f"audited: {json.dumps(bundle.regime.to_json())}")
    typer.echo(f"checkpoints: {', '.join(f'{f:g}' for f in bundle.checkpoints)}")
    for width, cut in bundle.constants.items():
        typer.echo(f"constant cut at K = {width}: {'never' if cut is None else f'{cut:g}'}")
    for width, ladder in bundle.ladders.items():
        for margin in (0.01, 0.03, 0.05, 0.12):
            choice = ladder.choose(margin, 0.95)
            promised = choice.refusal if choice.setting is None else f"no handoff before {choice.setting[0]:g}"
            typer.echo(f"risk at K = {width}, margin {margin:g}, 95 %: {promised}")
    shown = {name: bundle.evidence[name] for name in ("prompts", "rollouts", "fates", "horizons", "notes", "data_hash")}
    typer.echo(f"evidence: {json.dumps(shown)}")


@app.command("audit")
def audit(
    out: Annotated[Path, typer.Option(help="Folder for tables, plots and the sweep; what is there is resumed.")],
    family: Annotated[list[str] | None, typer.Option(help="Family; may be given again (default: all).")] = None,
    folder: FolderOption = None,
    census: Annotated[
        Path | None, typer.Option(help="The gates' census: adds the measured horizon, survivors and accuracy.")
    ] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Audit prompts a family (default: all).")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Fresh trajectories a prompt.")] = 2,
    tail_widths: Annotated[str, typer.Option(help="Tail widths separated by commas.")] = "1,4,8,16",
    seed: Annotated[int, typer.Option(help="Of the fresh trajectories; the census's differ by purpose.")] = 1000,
    trees: Annotated[int, typer.Option(min=10, help="Trees of the heads in the accuracy tables.")] = 400,
    accuracy: Annotated[bool, typer.Option(help="Cross-validate and ablate (with --census).")] = True,
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.")] = "mini",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    fluency_model: Annotated[str | None, typer.Option(help="Folder of a causal language model as judge.")] = None,
    compact: Annotated[
        Path | None, typer.Option(help="Afterwards write what a server shows beside the gates in this folder.")
    ] = None,
) -> None:
    """Compare every gate source on fresh trajectories of prompts that trained nothing; write tables and plots."""
    from gate_models.gates import learned_resolver  # noqa: PLC0415
    from gate_models.offline.census.records import CensusError  # noqa: PLC0415
    from gate_models.offline.gate_audit.export import export  # noqa: PLC0415
    from gate_models.offline.gate_audit.run import AuditSettings, headline  # noqa: PLC0415
    from gate_models.offline.gate_audit.run import audit as run  # noqa: PLC0415

    try:
        widths = wholes(tail_widths)
        settings = AuditSettings(
            families=tuple(family or ()),
            prompts=prompts,
            samples=samples,
            seed=seed,
            widths=widths,
            model=model,
            threads=threads,
            trees=trees,
            accuracy=accuracy,
            fluency_model=fluency_model,
        )
        writable(out, "--out", folder=True)
        writable(compact, "--compact", folder=True)
        content = run(settings, folder or learned_resolver.shipped_folder(), out, census)
        written = [] if compact is None else export(content, compact)
    except (CensusError, ValueError, OSError) as error:
        raise _failed(error) from None
    shown = 8 if 8 in widths else widths[-1]
    typer.echo(headline(content, shown))
    typer.echo(f"tables and plots: {out}")
    if compact is not None:
        typer.echo(f"{len(written)} reports beside the gates in {compact}")


def _line(family: str, version: str, sources: tuple[str, ...], where: Path) -> str:
    return f"{family}  {version}  {', '.join(sources)}  {where}"


def _failed(error: Exception) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(1)
