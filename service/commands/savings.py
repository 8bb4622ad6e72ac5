"""`astargate savings`: what ordinary requests spend of full CFG, and what is known of the gate that saves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import MACHINE, failures


def run(
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.", rich_help_panel=MACHINE)] = "mini",
    gates: Annotated[
        Path | None,
        typer.Option(
            help="Folder of gates and `pooled.json`, as of `astargate serve`.",
            exists=True,
            file_okay=False,
            rich_help_panel=MACHINE,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Texts of each kind.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first text of each kind.")] = 0,
) -> None:
    """Decode some forty ordinary kinds of request under the default policy; print what each spends of full CFG."""
    from decoding.models.checkpoint import CheckpointError  # noqa: PLC0415  (loads torch)
    from service.backend import backend  # noqa: PLC0415
    from service.commands.spending import measured, table  # noqa: PLC0415
    from service.config.settings import Settings  # noqa: PLC0415

    with failures("savings", CheckpointError, ValueError, RuntimeError):
        settings = Settings(model=model, gates=gates)
        loaded = backend.load(settings)
        with contextlib.closing(loaded.engine):
            typer.echo(table(measured(loaded, settings, samples=samples, seed=seed)))
