"""`astargate key`: makes an API key and the line that a key file holds of it."""

from __future__ import annotations

from typing import Annotated

import typer

from service.config.keys import KeyFormatError, hashed, new_secret, parse_keys

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.callback()
def keys() -> None:
    """Keeps `new` a subcommand of its own."""


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the key: jobs and limits belong to it; logs show it.")],
    scopes: Annotated[str, typer.Option(help="use, metrics, admin, joined by +. admin may do everything.")] = "use",
) -> None:
    """Make an API key: print it once, and the hashed entry for ASTARGATE_API_KEYS or the file of --api-keys-file."""
    secret = new_secret()
    entry = hashed(name, secret, scopes.split("+"))
    try:
        parse_keys(entry)
    except KeyFormatError as error:
        typer.echo(f"key new: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"key    {secret}\nentry  {entry}")
