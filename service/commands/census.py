"""astargate census"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import (
    BatchInvariant,
    MaxRows,
    Model,
    PromptsASubtask,
    Subtasks,
    names,
    numbers,
    wholes,
    writable,
)


def run(
    subtasks: Subtasks,
    out: Annotated[Path, typer.Option(help="Folder of the census; one that is there is resumed or grown.")],
    model: Model = "mini",
    prompts: PromptsASubtask = None,
    rollouts: Annotated[int, typer.Option(min=1, help="N: continuations a cell.")] = 24,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    weight: Annotated[float, typer.Option(help="Guidance scale of the run that is frozen.")] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Recorded runs at that scale; the first is frozen.")] = 2,
    extra_weights: Annotated[str, typer.Option(help="Scales of further recorded runs, one each.")] = "0,0.5,1,4",
    grid: Annotated[str, typer.Option(help="Freeze grid (default: the paper's).")] = "",
    extra_grid: Annotated[str, typer.Option(help="Further fractions with cells, such as 0.7,0.8,0.9.")] = "",
    tail_widths: Annotated[str, typer.Option(help="Base arms by tail width, such as 1,8.")] = "1",
    sweep: Annotated[str, typer.Option(help="Weight sweep by fresh runs, such as 0,0.5,1,1.5,2,2.5,3,3.5,4.")] = "",
    switch: Annotated[bool, typer.Option(help="Also fresh runs that hand off at each grid point (Eq. 5).")] = False,
    gen_length: Annotated[int | None, typer.Option(min=1, help="Canvas (default: each subtask's).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps (default: each subtask's).")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=5.0)] = 1.0,
    block_length: Annotated[int | None, typer.Option(min=1, help="Blocks (default: the whole canvas).")] = None,
    order: Annotated[str, typer.Option(help="Commit order while guided.")] = "confidence",
    guided_width: Annotated[int, typer.Option(min=1, help="Positions a guided step.")] = 1,
    coupling: Annotated[
        str, typer.Option(help="independent cells, or common or antithetic numbers across the arms.")
    ] = "independent",
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    shard: Annotated[int, typer.Option(min=1, help="Prompts that a worker takes and writes at a time.")] = 2,
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option()] = "float32",
    threads: Annotated[int, typer.Option(min=1, help="Threads a worker.")] = 1,
    max_rows: MaxRows = 64,
    batch_invariant: BatchInvariant = True,
    compact: Annotated[Path | None, typer.Option(help="Afterwards write the small form to this folder.")] = None,
) -> None:
    """Measure committors along recorded guided runs: every prompt x grid point x arm x N rollouts."""
    from gate_models.committor.choices import FREEZE_GRID  # noqa: PLC0415
    from gate_models.offline.census import run as census  # noqa: PLC0415
    from gate_models.offline.census import store  # noqa: PLC0415
    from gate_models.offline.census.settings import CensusSettings  # noqa: PLC0415
    from gate_models.offline.runs.process_pool import WorkerError  # noqa: PLC0415

    try:
        if compact is not None:
            store.check_compact(compact, out)
        settings = CensusSettings(
            subtasks=names(subtasks),
            prompts=prompts,
            rollouts=rollouts,
            seed=seed,
            model=model,
            weight=weight,
            repeats=repeats,
            extra_weights=tuple(sorted({*numbers(extra_weights)})),
            grid=numbers(grid) or FREEZE_GRID,
            extra_grid=numbers(extra_grid),
            tail_widths=wholes(tail_widths),
            sweep=numbers(sweep),
            switch=switch,
            gen_length=gen_length,
            steps=steps,
            temperature=temperature,
            block_length=block_length,
            order=order,
            guided_width=guided_width,
            coupling=census.coupling_named(coupling),
            device=device,
            dtype=dtype,
            invariant=batch_invariant,
            threads=threads,
            max_rows=max_rows,
        )
        writable(compact, "--compact", folder=True)
        finished = census.run(settings, out, workers=workers, shard=shard)
        if compact is not None and not finished.stopped:
            store.write_compact(store.load_census(out, heavy=False), compact)
    except (ValueError, WorkerError) as error:
        typer.echo(f"census: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(
            f"census: {error}; what is finished is kept: put that right and run the same command again", err=True
        )
        raise typer.Exit(2) from None
    speed = finished.rows / finished.seconds if finished.seconds else 0.0
    typer.echo(f"{finished.prompts} prompts, {finished.rows} forward evaluations, {speed:.0f} a second")
    if finished.stopped:
        typer.echo(f"stopped with {finished.left} prompts left; run the same command again to go on", err=True)
        raise typer.Exit(130)
    typer.echo(f"complete: astargate census-report {out}")
