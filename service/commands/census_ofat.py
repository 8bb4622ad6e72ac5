"""astargate census-ofat"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import Model, PromptsASubtask, Subtasks, names, numbers, wholes


def run(
    subtasks: Subtasks,
    out: Annotated[Path, typer.Option(help="Folder; each configuration is a census in a folder of its own.")],
    weights: Annotated[str, typer.Option(help="Weight axis, such as 0.5,1,4.")] = "",
    lengths: Annotated[str, typer.Option(help="Canvas axis, such as 16,32,48.")] = "",
    steps: Annotated[str, typer.Option(help="Steps axis, such as 8,16,32.")] = "",
    model: Model = "mini",
    prompts: PromptsASubtask = None,
    rollouts: Annotated[int, typer.Option(min=1, help="N: continuations a cell.")] = 24,
    seed: Annotated[int, typer.Option()] = 0,
    weight: Annotated[float, typer.Option(help="Guidance scale of the centre.")] = 2.0,
    workers: Annotated[int, typer.Option(min=1)] = 1,
    shard: Annotated[int, typer.Option(min=1)] = 2,
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option()] = "float32",
    max_rows: Annotated[int, typer.Option(min=2)] = 64,
) -> None:
    """Fates and horizons one factor at a time: guidance weight, canvas, steps. Resumable like the census."""
    from gate_models.offline.census import one_factor  # noqa: PLC0415
    from gate_models.offline.census.settings import CensusSettings  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415

    try:
        centre = CensusSettings(
            subtasks=names(subtasks),
            prompts=prompts,
            rollouts=rollouts,
            seed=seed,
            model=model,
            weight=weight,
            repeats=1,
            extra_weights=(),
            device=device,
            dtype=dtype,
            max_rows=max_rows,
        )
        configured = one_factor.configurations(
            centre,
            weights=numbers(weights),
            lengths=wholes(lengths),
            steps=wholes(steps),
        )
        finished = one_factor.run(configured, out, workers=workers, shard=shard)
    except (ValueError, OSError, WorkerError) as error:
        typer.echo(f"census-ofat: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(one_factor.to_markdown(one_factor.rows(out)))
    if any(found.stopped for found in finished.values()):
        typer.echo("stopped; run the same command again to go on", err=True)
        raise typer.Exit(130)
