"""astargate evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import BatchInvariant, MaxRows, Model, names, numbers, writable


def run(
    task: Annotated[str, typer.Option(help="A task, several separated by commas, or `all`.")] = "commongen",
    n: Annotated[int | None, typer.Option(help="Prompts a task (default: all it has).")] = None,
    split: Annotated[
        str, typer.Option(help="Only the prompts of these sets among them: train, calibrate, audit (default: all).")
    ] = "",
    policies: Annotated[
        str, typer.Option(help="Policies, such as base,full_cfg,handoff:0.3:k8,policy,value:0.002:k8.")
    ] = "base,full_cfg",
    weights: Annotated[str, typer.Option(help="Guidance scales to sweep, such as 0,1,2,4.")] = "",
    samples: Annotated[int, typer.Option(min=1, help="Texts a prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of every text.")] = 0,
    canvas: Annotated[int | None, typer.Option(min=1, help="Canvas and steps (default: each task's own).")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=5.0)] = 1.0,
    without: Annotated[
        str,
        typer.Option(
            help="An ablation of guidance-first orders: `whole_words` (words may stay half-written), `text_margins` "
            "(the ends of a canvas are filled like the rest)."
        ),
    ] = "",
    block_length: Annotated[int | None, typer.Option(min=1, help="Blocks (default: the whole canvas).")] = None,
    census: Annotated[
        Path | None, typer.Option(help="Census whose measured horizons policy `recorded` hands off at.")
    ] = None,
    model: Model = "mini",
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option()] = "float32",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    max_rows: MaxRows = 64,
    batch_invariant: BatchInvariant = False,
    fluency_model: Annotated[
        str | None, typer.Option(help="Folder of a causal language model that judges fluency (default: shipped).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the result here as JSON; finished cells of an earlier run are kept.")
    ] = None,
) -> None:
    """Success, repeats, length, rows and seconds of policies on a task.

    Policies: base, full_cfg, handoff:FRACTION, parallel_tail:FRACTION, drained:THRESHOLD; constant, calibrated, raw,
    policy, value[:PRICE], risk[:MARGIN] (the family's own, as a server takes them); recorded; auto. Options follow a
    colon, such as :k8; a name that cannot be read is answered with all of them.
    """
    from gate_models.offline.evaluation import run as evaluate  # noqa: PLC0415

    try:
        settings = evaluate.EvaluateSettings(
            tasks=names(task),
            policies=names(policies),
            weights=numbers(weights),
            n=n,
            splits=names(split) if split else (),
            samples=samples,
            seed=seed,
            canvas=canvas,
            temperature=temperature,
            without=names(without) if without else (),
            block_length=block_length,
            census=None if census is None else str(census),
            model=model,
            device=device,
            dtype=dtype,
            threads=threads,
            max_rows=max_rows,
            invariant=batch_invariant,
            fluency_model=fluency_model,
        )
        writable(out, "--out")
        evaluate.run(settings, out)
    except ValueError as error:  # CheckpointError among them
        typer.echo(f"evaluate: {error}", err=True)
        raise typer.Exit(2) from None
