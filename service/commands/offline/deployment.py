"""`astargate deployment report | learn-cascade`: policies as a server would run them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import failures, group, names

app = group("Policies as a server would run them: their success at a number of rows.")


@app.command("report")
def report(
    results: Annotated[list[Path], typer.Argument(help="Of `astargate evaluate --out`.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    compared: Annotated[
        str, typer.Option(help="Policies that are compared family by family.")
    ] = "handoff:0.3:repair3x4,base:repair3x4,auto",
) -> None:
    """Write tables, numbers and a picture: every policy beside full CFG, and beside best-of-n at the same rows."""
    from gate_models.offline.deployment.report import write  # noqa: PLC0415

    with failures("deployment report", OSError, ValueError):
        write(results, out, names(compared))


@app.command("learn-cascade")
def learn_cascade(
    result: Annotated[Path, typer.Argument(help="Of `astargate evaluate --out`.")],
    out: Annotated[Path | None, typer.Option(help="File to write into (default: the shipped one).")] = None,
    length: Annotated[int, typer.Option(min=1, help="Attempts of an order.")] = 6,
    fluency_factor: Annotated[
        float | None, typer.Option(help="Limit of a policy's perplexity, as a multiple of full CFG's (default: none).")
    ] = None,
) -> None:
    """Learn the order of preset `auto`; orders of other families and models in the file stay."""
    from gate_models.offline.deployment.learn_cascade import run  # noqa: PLC0415
    from gate_models.policies.cascade import shipped_path  # noqa: PLC0415

    with failures("deployment learn-cascade", OSError, ValueError):
        learned = run(result, out or shipped_path(), length, fluency_factor)
    for order in learned:
        typer.echo(f"{order.family}: {', '.join(order.attempts)}")
