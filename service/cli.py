"""The console command `astargate`. Each command is a module of `service.commands`; none loads torch before it runs."""

from __future__ import annotations

import typer

from service.commands import (
    bench,
    census,
    census_ofat,
    census_report,
    deployment,
    drained,
    evaluate,
    gate,
    generate,
    key,
    models,
    order_study,
    repair_census,
    serve,
    train_mini,
)

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
app.command("census")(census.run)
app.command("census-report")(census_report.run)
app.command("census-ofat")(census_ofat.run)
app.command("repair-census")(repair_census.run)
app.add_typer(deployment.app, name="deployment")
app.add_typer(drained.app, name="drained")
app.add_typer(order_study.app, name="order-study")
app.command("bench")(bench.run)
app.add_typer(gate.app, name="gate")
app.add_typer(key.app, name="key")
app.command("train-mini")(train_mini.run)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
