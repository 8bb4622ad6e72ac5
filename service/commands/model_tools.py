"""astargate random-model, astargate sizing: what is needed around models that are too large to have at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def random_model(
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


def sizing(
    model: Annotated[str, typer.Option(help="'llada' or 'dream'.")] = "llada",
    weights: Annotated[str, typer.Option(help="Arithmetic of the weights, such as bfloat16 or int8.")] = "bfloat16",
    teraflops: Annotated[float | None, typer.Option(help="Dense bfloat16 peak of the card.", min=1e-3)] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Its memory bandwidth, terabytes a second.", min=1e-3)] = None,
    share: Annotated[float | None, typer.Option(help="Part of the peak that is reached.", min=1e-3, max=1.0)] = None,
) -> None:
    """Estimate memory and forward time of a large model on one card, from its shape (default: an H100)."""
    from decoding.models.tools.sizing import H100, MODELS, WEIGHT_BYTES, Card, table  # noqa: PLC0415

    for name, value, known in (("--model", model, MODELS), ("--weights", weights, WEIGHT_BYTES)):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is unknown; use one of: {', '.join(known)}", param_hint=name)
    card = Card(teraflops or H100.teraflops, bandwidth or H100.terabytes_per_second, share or H100.share)
    typer.echo(table(MODELS[model], card, weights))
