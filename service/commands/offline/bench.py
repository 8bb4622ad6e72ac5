"""`astargate bench`, `bench-precision` and `sizing`: speed that is measured, and of large models estimated."""

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
    from gate_models.offline.bench import latency  # noqa: PLC0415
    from gate_models.offline.bench import run as bench  # noqa: PLC0415

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


def sizing(
    model: Annotated[str, typer.Option(help="'llada' or 'dream'.")] = "llada",
    weights: Annotated[str, typer.Option(help="Arithmetic of the weights, such as bfloat16 or int8.")] = "bfloat16",
    teraflops: Annotated[float | None, typer.Option(help="Dense bfloat16 peak of the card.", min=1e-3)] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Its memory bandwidth, terabytes a second.", min=1e-3)] = None,
    share: Annotated[float | None, typer.Option(help="Part of the peak that is reached.", min=1e-3, max=1.0)] = None,
) -> None:
    """Estimate memory and forward time of a large model on one card, from its shape (default: an H100)."""
    from gate_models.offline.bench.sizing import H100, MODELS, WEIGHT_BYTES, Card, table  # noqa: PLC0415

    for name, value, known in (("--model", model, MODELS), ("--weights", weights, WEIGHT_BYTES)):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is unknown; use one of: {', '.join(known)}", param_hint=name)
    card = Card(teraflops or H100.teraflops, bandwidth or H100.terabytes_per_second, share or H100.share)
    typer.echo(table(MODELS[model], card, weights))
