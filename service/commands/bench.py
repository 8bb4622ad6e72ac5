"""astargate bench"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import writable


def run(
    concurrency: Annotated[str, typer.Option(help="Requests in flight.")] = "1,8,32",
    requests: Annotated[int, typer.Option(min=1, max=240, help="Prompts a configuration.")] = 32,
    gen_length: Annotated[int, typer.Option(min=1, help="Canvas and steps.")] = 16,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine and of the loop alike.")] = 1,
    seed: Annotated[int, typer.Option()] = 0,
    model: Annotated[str, typer.Option(help="`mini` or a checkpoint folder.")] = "mini",
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[str, typer.Option()] = "float32",
    with_horizon: Annotated[
        bool, typer.Option("--with-horizon", help="Latency of /generate with and without a horizon job instead.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
) -> None:
    """Throughput of the engine against a plain sequential loop, in one run, as ratios."""
    from gate_models.offline.bench import run as bench  # noqa: PLC0415
    from service.commands import latency  # noqa: PLC0415

    try:
        writable(out, "--out")
        settings = bench.BenchSettings(
            model=model,
            device=device,
            dtype=dtype,
            threads=threads,
            concurrency=_numbers(concurrency),
            requests=requests,
            gen_length=gen_length,
            repeats=repeats,
            seed=seed,
        )
        (latency if with_horizon else bench).run(settings, out)
    except ValueError as error:  # CheckpointError among them
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(2) from None


def _numbers(listed: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in listed.split(","))
    except ValueError:
        raise ValueError(f"concurrency {listed!r}: give whole numbers, such as --concurrency 1,8") from None
