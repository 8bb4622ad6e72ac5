"""`astargate bench` and `bench-precision`: speed of the engine, and of the forms of the shipped model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gate_models.offline.bench.settings import BenchSettings
from service.commands.options import MEASUREMENT, OPTIONS, PROMPTS, Opt, from_settings, writable


@from_settings(
    BenchSettings,
    "bench",
    options={
        "concurrency": Opt(panel=MEASUREMENT),
        "requests": Opt("prompts", ("requests",), minimum=1, maximum=240, panel=PROMPTS),
        "gen_length": replace(OPTIONS["gen_length"], shown=""),
        "repeats": Opt(minimum=1, panel=MEASUREMENT),
        "threads": replace(OPTIONS["threads"], help="Torch threads of the engine and of the loop alike."),
    },
)
def run(
    settings: BenchSettings,
    with_horizon: Annotated[
        bool, typer.Option("--with-horizon", help="Latency of /generate with and without a horizon job instead.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
) -> None:
    """Throughput of the engine against a plain sequential loop, in one run, as ratios."""
    from gate_models.offline.bench import run as bench  # noqa: PLC0415
    from service.commands.offline import latency  # noqa: PLC0415

    writable(out, "--out")
    (latency if with_horizon else bench).run(settings, out)


def precision(
    family: Annotated[str, typer.Option(help="Family whose prompts are decoded.")] = "commongen-k4",
    policy: Annotated[str, typer.Option(help="Policy that decodes them.")] = "full_cfg:w2",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which the forms take turns.")] = 2,
) -> None:
    """Success per second of the shipped model in float32, in 8-bit integers and with fewer layers."""
    from decoding.models.compute import compute_mode  # noqa: PLC0415
    from gate_models.offline.bench.precision import measure  # noqa: PLC0415

    with compute_mode(1):
        typer.echo(measure(family, policy, prompts, rounds))
