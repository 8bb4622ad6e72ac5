"""astargate serve"""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from service.settings import Settings


def _option(field: str) -> typer.models.OptionInfo:
    """An option documented by the setting that it overrides."""
    info = Settings.model_fields[field]
    shown = "" if info.default is None else f" [default: {info.default}]"
    option: typer.models.OptionInfo = typer.Option(
        help=f"{info.description}{shown} [env: ASTARGATE_{field.upper()}]", show_default=False
    )
    return option


def run(
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    model: Annotated[str | None, _option("model")] = None,
    device: Annotated[str | None, _option("device")] = None,
    dtype: Annotated[str | None, _option("dtype")] = None,
    quantization: Annotated[str | None, _option("quantization")] = None,
    threads: Annotated[int | None, _option("threads")] = None,
    batch_invariant: Annotated[bool | None, _option("batch_invariant")] = None,
    max_rows: Annotated[int | None, _option("max_rows")] = None,
    max_queued_rows: Annotated[int | None, _option("max_queued_rows")] = None,
    max_samples: Annotated[int | None, _option("max_samples")] = None,
    max_request_tokens: Annotated[int | None, _option("max_request_tokens")] = None,
    max_request_rows: Annotated[int | None, _option("max_request_rows")] = None,
    max_body_bytes: Annotated[int | None, _option("max_body_bytes")] = None,
    default_deadline: Annotated[float | None, _option("default_deadline")] = None,
    max_deadline: Annotated[float | None, _option("max_deadline")] = None,
    drain_seconds: Annotated[float | None, _option("drain_seconds")] = None,
    keep_alive_seconds: Annotated[float | None, _option("keep_alive_seconds")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    access_log: Annotated[bool | None, _option("access_log")] = None,
) -> None:
    """Start the HTTP service."""
    given = {name: value for name, value in locals().items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        typer.echo(f"--{name.replace('_', '-')} (or ASTARGATE_{name.upper()}): {first['msg']}", err=True)
        raise typer.Exit(2) from None
    from service.server import serve  # noqa: PLC0415  (loads torch)

    raise typer.Exit(serve(settings))
