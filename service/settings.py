"""What an operator may set, by `ASTARGATE_*` environment variables or the command line. Light: no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of one server process; every field is also the variable `ASTARGATE_<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="ASTARGATE_", frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    model: str = "mini"
    """'mini' (shipped), a checkpoint folder, or a hub id owner/name[@revision], downloaded once."""
    device: str = "cpu"
    """Torch device, such as cpu or cuda:0; several, joined by commas, share the model's layers (not mini's)."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the weights."""
    quantization: Literal["none", "int8", "int4"] = "none"
    """Weight-only quantization of the model's layers (not mini's); needs torchao."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Torch threads of the engine; by default one for each physical core that this process may use."""
    batch_invariant: bool = False
    """Fixed tiles: the same request gives bit-equal tokens whatever shares its batch; slower at light load."""
    max_rows: int = Field(default=64, ge=2, le=4096)
    """Rows of one engine step."""
    max_queued_rows: int = Field(default=65_536, ge=2)
    """Estimated forward evaluations that may be admitted and unfinished; beyond it requests get 429."""
    max_samples: int = Field(default=64, ge=1, le=1024)
    """Largest n of a request."""
    max_request_tokens: int = Field(default=8192, ge=1)
    """Largest n * gen_length of a request."""
    max_request_rows: int = Field(default=32_768, ge=2)
    """Largest estimated forward evaluations of a request, all samples together; beyond it requests get 422."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest request body."""
    default_deadline: float | None = Field(default=None, gt=0)
    """Seconds after which a request without deadline_s fails; none by default."""
    max_deadline: float = Field(default=3600.0, gt=0)
    """Largest deadline_s of a request."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long running requests may take to finish after SIGTERM."""
    keep_alive_seconds: float = Field(default=15.0, gt=0)
    """Pause after which a silent event stream gets a comment, so that proxies keep it open."""
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Verbosity of the server's log."""
    access_log: bool = True
    """One log line for each HTTP request; it never holds prompt text."""
