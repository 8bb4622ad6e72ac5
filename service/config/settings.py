"""What an operator may set, by `ASTARGATE_*` environment variables or the command line. Nothing here loads torch."""

from __future__ import annotations

import os
from functools import cached_property
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.config.keys import Keyring, parse_keys


class Settings(BaseSettings):
    """Settings of one server process; every field is also the variable `ASTARGATE_<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="ASTARGATE_", frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every one that this machine has."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    model: str = "mini"
    """'mini' (shipped), a checkpoint folder, or a hub id owner/name[@revision], downloaded once."""
    defaults: Literal["model", "paper"] = "model"
    """Where a request's open fields come from: the model's generation_config.json, or the paper's plain guidance."""
    gates: Path | None = None
    """Folder of gates from `astargate gate train`, and of `pooled.json` from `astargate drained pooled`, beside the
    shipped ones; theirs go first where both fit.
    """
    device: str = "cpu"
    """Torch device, such as cpu or cuda:0; several, joined by commas, share the model's layers (not mini's)."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the weights."""
    quantization: Literal["default", "none", "int8", "int4"] = "default"
    """Of LLaDA's and Dream's layers weight-only, none by default, needs torchao; of mini int8 where the CPU can."""
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
    max_selection_rows: int = Field(default=2048, ge=0)
    """Largest forward evaluations that a repair round of a request may spend on choosing positions; beyond it 422."""
    lenient: bool = False
    """OpenAI routes: max_tokens above the model's limit means that limit, in place of an error."""
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
    max_connections: int = Field(default=1000, ge=1, le=100_000)
    """Open connections; beyond it the longest idle one is closed, and where none is idle only /health is answered."""
    max_header_bytes: int = Field(default=65_536, ge=4096, le=1 << 20)
    """Largest headers of a request; beyond it 431."""
    header_seconds: float = Field(default=10.0, gt=0)
    """How long a new connection, or the headers of a request once begun, may take; then 408."""
    body_seconds: float = Field(default=60.0, gt=0)
    """How long the body of a request may take to arrive; then 408."""
    stalled_seconds: float = Field(default=60.0, gt=0)
    """How long a client may leave what is sent to it unread; then its connection is closed."""
    allowed_hosts: str = ""
    """Names in the header Host that are answered, apart by commas, *.example.org for all under it; others get 421,
    but for /health. By default all.
    """
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Verbosity of the server's log."""
    access_log: bool = True
    """One log line for each HTTP request; it never holds prompt text."""
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line, with the request's id."""
    log_prompts: bool = False
    """Log the prompt of every request that is decoded."""
    cors_origins: str = ""
    """Origins whose pages may use this server, apart by commas, or *; by default none but its own."""
    traces: bool = False
    """Send OpenTelemetry traces by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT; needs pip install 'astargate[otel]'."""
    database: str | None = None
    """Where committor jobs, measured horizons and audits are kept: sqlite:///FILE or postgresql://USER@HOST/NAME; by
    default the file astargate/astargate.db in $XDG_STATE_HOME (~/.local/state).
    """
    committor_inline_rows: int = Field(default=1500, ge=0)
    """Estimated forward evaluations up to which POST /committor answers at once; a larger one becomes a job."""
    committor_wait_seconds: float = Field(default=60.0, gt=0)
    """How long such an answer may take before it becomes a job after all."""
    committor_max_rows: int = Field(default=500_000, ge=2)
    """Largest estimated forward evaluations of a committor request; beyond it requests get 422."""
    committor_jobs_per_key: int = Field(default=16, ge=1)
    """Unfinished committor jobs that one API key may have; beyond it requests get 429."""
    committor_jobs: int = Field(default=256, ge=1)
    """Unfinished committor jobs in the database; beyond it requests get 429."""
    committor_slots: int = Field(default=1, ge=0, le=64)
    """Committor jobs that this server runs at once; 0 leaves them to other servers on the same database."""
    committor_in_flight: int | None = Field(default=None, ge=1, le=4096)
    """Continuations of a job in the engine at once; by default 8 on a CPU, max_rows elsewhere."""
    committor_retention_days: float = Field(default=30.0, gt=0)
    """How long ended committor jobs can be read; measured horizons stay."""
    audit_share: float = Field(default=0.02, ge=0, le=1)
    """Share of the samples with a calibrated or learned gate that the shadow audit chooses; 0 turns it off."""
    audit_share_uncertified: float = Field(default=0.1, ge=0, le=1)
    """The same, where it is more, while a gate is uncertified or suspended."""
    audit_margin: float = Field(default=0.03, gt=0, lt=1)
    """Success that handing off may cost, given a handoff: a gate that the audit shows to cost more is suspended."""
    audit_confidence: float = Field(default=0.95, gt=0, lt=1)
    """Confidence of the audit's verdicts, over all the times that they are looked at."""
    audit_queue: int = Field(default=1000, ge=0)
    """Unfinished audits in the database, above which further ones are dropped and counted."""
    audit_in_flight: int | None = Field(default=None, ge=0, le=4096)
    """Audits in the engine at once; by default as many as a committor job's continuations, 0 leaves them to other
    servers on the same database.
    """
    audit_retention_days: float = Field(default=90.0, gt=0)
    """How long prompts, texts and features of audits are kept for retraining; the verdicts on a gate stay."""
    background_rows: int | None = Field(default=None, ge=2, le=4096)
    """Rows of background work (committor jobs, audits) in a step beside those of interactive requests; by default 2 on
    a CPU, where every row takes time, and no limit elsewhere.
    """
    lease_seconds: float = Field(default=30.0, ge=0.5)
    """After how long without a sign of life a server's committor jobs and audits are taken over by another one."""
    api_keys: SecretStr = SecretStr("")
    """API keys, plain or hashed (`astargate key new`), apart by commas. Without any, no key is asked for."""
    api_keys_file: Path | None = None
    """File with more of the keys that ASTARGATE_API_KEYS lists, one a line: NAME:KEY or NAME:sha256:HEX[:SCOPES]."""
    require_keys: bool = False
    """Refuse to start without API keys; by default a warning, where other machines reach the address."""
    key_concurrency: int | None = Field(default=None, ge=1)
    """Requests that one API key (or everybody, without keys) may have running; no limit by default."""
    key_requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests for work that one API key may send in a minute; no limit by default."""
    protect_metrics: bool = False
    """Ask for a key with scope `metrics` or `admin` on /metrics too."""
    protect_playground: bool = False
    """Ask for a key on the playground too; a browser asks for it as the password of any user name."""

    @cached_property
    def keyring(self) -> Keyring:
        """The keys that the server starts with. Raises as `read_keyring`."""
        return self.read_keyring()

    def read_keyring(self) -> Keyring:
        """The keys of both settings, as they are now.

        Raises `ValueError` where the file cannot be read, a key is malformed, or a setting is given and holds no key:
        nobody means to open a server to everybody by a list of keys.
        """
        listed = parse_keys(self.api_keys.get_secret_value())
        if self.api_keys.get_secret_value().strip() and not listed.entries:
            raise ValueError("api_keys holds no key; leave it unset where none is to be asked for")
        if self.api_keys_file is None:
            return listed
        try:
            text = self.api_keys_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"api_keys_file: {error}") from None
        if not parse_keys(text).entries:
            raise ValueError(f"api_keys_file: {self.api_keys_file} holds no key")
        return parse_keys(self.api_keys.get_secret_value() + "\n" + text)

    @property
    def is_open_to_all(self) -> bool:
        """Whether other machines may reach the server, and none of them is asked for a key."""
        return not self.keyring.entries and not _is_loopback(self.host)

    @property
    def background_in_flight(self) -> int:
        """Continuations of one kind of background work that are in the engine at once."""
        return self.committor_in_flight or (8 if self.device == "cpu" else self.max_rows)

    @property
    def origins(self) -> list[str]:
        """`cors_origins` as a list."""
        return [origin.strip() for origin in self.cors_origins.split(",") if origin.strip()]

    @property
    def hosts(self) -> list[str]:
        """`allowed_hosts` as a list."""
        return [host.strip().lower() for host in self.allowed_hosts.split(",") if host.strip()]

    @field_validator("traces")
    @classmethod
    def _check_traces(cls, wanted: bool) -> bool:
        if wanted and find_spec("opentelemetry.exporter") is None:
            raise ValueError("needs the packages of pip install 'astargate[otel]'")
        if wanted and not any(os.environ.get(f"OTEL_EXPORTER_OTLP_{end}") for end in ("ENDPOINT", "TRACES_ENDPOINT")):
            raise ValueError("needs the environment variable OTEL_EXPORTER_OTLP_ENDPOINT: where the traces go")
        return wanted

    @field_validator("gates")
    @classmethod
    def _check_gates(cls, folder: Path | None) -> Path | None:
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{folder} is no folder; give one that astargate gate train has filled, or leave it out")
        return folder

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        if not host.strip():
            raise ValueError("is empty; 0.0.0.0 or :: listens on every address, 127.0.0.1 on this machine alone")
        return host

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if not self.keyring.entries and (self.protect_metrics or self.protect_playground):
            name = "protect_metrics" if self.protect_metrics else "protect_playground"
            raise ValueError(f"{name} needs API keys; set ASTARGATE_API_KEYS or api_keys_file")
        if not self.keyring.entries and self.require_keys:
            raise ValueError("require_keys: there are no API keys; set ASTARGATE_API_KEYS or api_keys_file")
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
