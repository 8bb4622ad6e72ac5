"""The console command `astargate`. Each command is a module of `service.commands`; none loads torch before it runs."""

from __future__ import annotations

import typer

from service.commands import bench, evaluate, generate, models, serve, train_mini

app = typer.Typer(
    name="astargate",
    help="Serve masked diffusion language models with guidance that ends as soon as it stops paying.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.run)
app.command("generate")(generate.run)
app.command("models")(models.run)
app.command("evaluate")(evaluate.run)
app.command("bench")(bench.run)
app.command("train-mini")(train_mini.run)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
