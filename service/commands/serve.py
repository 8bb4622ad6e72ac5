"""astargate serve"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from service.config.settings import Settings


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
    gates: Annotated[Path | None, _option("gates")] = None,
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
    max_selection_rows: Annotated[int | None, _option("max_selection_rows")] = None,
    max_body_bytes: Annotated[int | None, _option("max_body_bytes")] = None,
    default_deadline: Annotated[float | None, _option("default_deadline")] = None,
    max_deadline: Annotated[float | None, _option("max_deadline")] = None,
    drain_seconds: Annotated[float | None, _option("drain_seconds")] = None,
    keep_alive_seconds: Annotated[float | None, _option("keep_alive_seconds")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    access_log: Annotated[bool | None, _option("access_log")] = None,
    log_format: Annotated[str | None, _option("log_format")] = None,
    log_prompts: Annotated[bool | None, _option("log_prompts")] = None,
    cors_origins: Annotated[str | None, _option("cors_origins")] = None,
    traces: Annotated[bool | None, _option("traces")] = None,
    database: Annotated[str | None, _option("database")] = None,
    committor_inline_rows: Annotated[int | None, _option("committor_inline_rows")] = None,
    committor_wait_seconds: Annotated[float | None, _option("committor_wait_seconds")] = None,
    committor_max_rows: Annotated[int | None, _option("committor_max_rows")] = None,
    committor_jobs_per_key: Annotated[int | None, _option("committor_jobs_per_key")] = None,
    committor_jobs: Annotated[int | None, _option("committor_jobs")] = None,
    committor_slots: Annotated[int | None, _option("committor_slots")] = None,
    committor_in_flight: Annotated[int | None, _option("committor_in_flight")] = None,
    committor_retention_days: Annotated[float | None, _option("committor_retention_days")] = None,
    audit_share: Annotated[float | None, _option("audit_share")] = None,
    audit_share_uncertified: Annotated[float | None, _option("audit_share_uncertified")] = None,
    audit_margin: Annotated[float | None, _option("audit_margin")] = None,
    audit_confidence: Annotated[float | None, _option("audit_confidence")] = None,
    audit_queue: Annotated[int | None, _option("audit_queue")] = None,
    audit_in_flight: Annotated[int | None, _option("audit_in_flight")] = None,
    audit_retention_days: Annotated[float | None, _option("audit_retention_days")] = None,
    background_rows: Annotated[int | None, _option("background_rows")] = None,
    lease_seconds: Annotated[float | None, _option("lease_seconds")] = None,
    api_keys_file: Annotated[Path | None, _option("api_keys_file")] = None,
    key_concurrency: Annotated[int | None, _option("key_concurrency")] = None,
    key_requests_per_minute: Annotated[int | None, _option("key_requests_per_minute")] = None,
    protect_metrics: Annotated[bool | None, _option("protect_metrics")] = None,
    protect_playground: Annotated[bool | None, _option("protect_playground")] = None,
) -> None:
    """Start the HTTP service."""
    given = {name: value for name, value in locals().items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""  # a rule on several settings names them itself
        where = f"--{name.replace('_', '-')} (or ASTARGATE_{name.upper()}): " if name else ""
        typer.echo(where + first["msg"].removeprefix("Value error, "), err=True)
        raise typer.Exit(2) from None
    from service.server import serve  # noqa: PLC0415  (loads torch)

    raise typer.Exit(serve(settings))
