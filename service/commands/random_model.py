"""`astargate random-model`: a small checkpoint in the layout of a model that is too large to have at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint; it is made.", show_default=False)],
    arch: Annotated[str, typer.Option(help="'llada' or 'dream'.")] = "llada",
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
) -> None:
    """Write a small random checkpoint in a published model's layout, to try its loading code and the server."""
    from decoding.models.tools.make_random import ARCHS, make_random  # noqa: PLC0415  (loads torch)

    known = next((name for name in ARCHS if name == arch), None)
    if known is None:
        raise typer.BadParameter(f"{arch!r} is unknown; use one of: {', '.join(ARCHS)}", param_hint="--arch")
    folder = make_random(known, out, seed=seed)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    typer.echo(f"{folder}: random {arch} checkpoint, {size:.1f} MB")
