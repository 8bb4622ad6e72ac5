"""`astargate models`: shows a model's hash and limits, and the architectures that can be loaded."""

from __future__ import annotations

from typing import Annotated

import typer


def run(
    model: Annotated[str, typer.Option(help="'mini' or a checkpoint folder.")] = "mini",
) -> None:
    """Show a model: its hash, its limits, and which architectures can be loaded."""
    from decoding.models.checkpoint import CheckpointError  # noqa: PLC0415  (loads torch)
    from decoding.models.registry import LOADERS, load_model  # noqa: PLC0415

    try:
        spec = load_model(model).spec
    except CheckpointError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    shown = {
        "name": spec.name,
        "hash": spec.hash,
        "architecture": spec.architecture,
        "vocabulary": spec.vocab_size,
        "longest prompt": spec.max_prompt,
        "longest canvas": spec.max_canvas,
        "default canvas": spec.default_canvas,
    }
    for name, value in shown.items():
        typer.echo(f"{name:16} {value}")
    typer.echo(f"{'can be loaded':16} {', '.join(sorted(LOADERS))}")
