"""`astargate models`: what can be served, whether it fits on this machine, and how to get it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from service.commands.known_models import DTYPE_BYTES, KNOWN, KnownModel, fit_of, memory_of
from service.commands.options import failures

app = typer.Typer(help="Models that can be served: list, show, pull.", invoke_without_command=True)
DeviceOption = Annotated[str, typer.Option(help="Torch device whose memory counts, such as cpu or cuda:0.")]
DtypeOption = Annotated[str, typer.Option(help="Precision of the weights: bfloat16, float16 or float32.")]
COLUMNS: Final = ("model", "architecture", "parameters", "weights", "memory", "here", "where")
NAMED: Final = (
    "Any other checkpoint of these architectures can be named by its folder, or owner/name[@revision] on the hub."
)


@app.callback()
def overview(
    context: typer.Context,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "bfloat16",
    model: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Models that can be served, with their size, the memory that they need, and whether this machine has it."""
    if context.invoked_subcommand is not None:
        return
    if model is not None:  # an earlier way to say `models show MODEL`
        show(model)
        return
    with failures("models", ValueError):
        if dtype not in DTYPE_BYTES:
            raise ValueError(f"--dtype {dtype!r} is unknown; use one of {', '.join(DTYPE_BYTES)}")
        present = memory_of(device)
    rows = [COLUMNS, *(_row(known, dtype, present) for known in KNOWN)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo(f"\n{present:.1f} GB are free on {device}; memory is for a usual load in {dtype} (mini: float32).")
    typer.echo(f"{NAMED}\nServe one: astargate serve --model NAME --dtype {dtype} --device {device}")


def _row(known: KnownModel, dtype: str, present: float) -> tuple[str, ...]:
    needed = known.memory_gb(dtype)
    return (
        known.name,
        known.architecture,
        _count(known.parameters),
        _size(known.weights_gb(dtype)),
        _size(needed),
        fit_of(needed, present),
        "shipped" if known.name == "mini" else "downloaded" if _downloaded(known.name) else "on the hub",
    )


def _count(parameters: float) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def _size(gigabytes: float) -> str:
    return f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{gigabytes * 1e3:.0f} MB"


def _downloaded(name: str) -> bool:
    """Whether the hub's cache on this machine has the checkpoint's configuration."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


@app.command("show")
def show(model: Annotated[str, typer.Argument(help="'mini', a checkpoint folder or owner/name.")] = "mini") -> None:
    """Load a model and show its hash, its limits, and which architectures can be loaded."""
    from decoding.models.checkpoint import CheckpointError  # noqa: PLC0415  (loads torch)
    from decoding.models.registry import LOADERS, load_model  # noqa: PLC0415

    with failures("models show", CheckpointError, code=1):
        spec = load_model(model).spec
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


@app.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="owner/name[@revision] on the hub.")],
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "bfloat16",
    anyway: Annotated[bool, typer.Option("--anyway", help="Download what does not fit here, too.")] = False,
) -> None:
    """Download a checkpoint (weights, configuration, tokenizer; never code), where a hub can be reached."""
    from decoding.models.checkpoint import CheckpointError  # noqa: PLC0415
    from decoding.models.hub import is_hub_id, local_folder  # noqa: PLC0415

    with failures("models pull", ValueError):
        if not is_hub_id(name):
            raise ValueError(f"{name!r} is no owner/name[@revision] of a hub; `astargate models` lists known ones")
        known = next((one for one in KNOWN if one.name == name.partition("@")[0]), None)
        if known is not None:
            needed, present = known.memory_gb(dtype), memory_of(device)
            fit = fit_of(needed, present)
            typer.echo(f"{name}: {_size(known.download_gb())} to download, {_size(needed)} to serve in {dtype}: {fit}")
            if fit == "does not fit" and not anyway:
                raise ValueError(f"{present:.1f} GB are free on {device}; --anyway downloads it all the same")
    with failures("models pull", CheckpointError, code=1):
        folder = local_folder(name)
    typer.echo(f"{folder}\nServe it: astargate serve --model {name} --dtype {dtype} --device {device}")
