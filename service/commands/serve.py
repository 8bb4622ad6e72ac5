"""`astargate serve`: the HTTP service. Every setting but the API keys themselves is an option here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from pydantic import ValidationError

from service.commands.options import literal
from service.config.settings import Settings

ENVIRONMENT_ONLY: Final = ("api_keys",)
"""Settings that are no options: a secret on a command line is seen by every process of the machine."""
PANELS: Final[Mapping[str, str]] = {
    "host": "Address",
    "model": "Model and engine",
    "max_queued_rows": "Limits of a request",
    "drain_seconds": "Connections and logs",
    "traces": "Traces",
    "database": "Committor jobs",
    "audit_share": "Shadow audit",
    "background_rows": "Background work",
    "api_keys_file": "API keys",
    "key_concurrency": "Limits of an API key",
    "protect_metrics": "Pages that ask for a key",
}
"""Headings of the help by the first setting under each."""


def run(**given: Any) -> None:
    """Start the HTTP service.

    Every option can be set in the environment too, --max-rows as ASTARGATE_MAX_ROWS; the command line goes first.
    """
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""  # a rule on several settings names them itself
        where = f"--{name.replace('_', '-')} (or ASTARGATE_{name.upper()}): " if name else ""
        typer.echo(where + first["msg"].removeprefix("Value error, "), err=True)
        raise typer.Exit(2) from None
    from service.server import serve  # noqa: PLC0415  (loads torch)

    raise typer.Exit(serve(settings))


def _options() -> list[inspect.Parameter]:
    """One option a setting, None where it is left to the environment or the default, under the headings of `PANELS`."""
    parameters, panel = [], ""
    for name, field in Settings.model_fields.items():
        panel = PANELS.get(name, panel)
        if name in ENVIRONMENT_ONLY:
            continue
        shown = "" if field.default is None else f" (default: {field.default})"
        info = typer.Option(
            help=literal(f"{field.description}{shown}"),
            show_default=False,
            rich_help_panel=panel,
        )
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[_read_as(field.annotation), info],
            )
        )
    return parameters


def _read_as(annotation: Any) -> Any:
    """The type that the command line reads; what only pydantic judges, such as a choice of names, is read as text."""
    plain = [kind for kind in (bool, int, float, Path) if kind in (annotation, *get_args(annotation))]
    return (plain[0] if plain else str) | None


run.__signature__ = inspect.Signature(_options())  # type: ignore[attr-defined]
run.__annotations__ = {parameter.name: parameter.annotation for parameter in _options()}
