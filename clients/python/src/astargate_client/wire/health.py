"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from typing import Literal

from astargate_client.transport.reply import Reply


class Health(Reply):
    status: str
    database: Literal["reachable", "unreachable"] | None = None
    """Whether committor jobs, measured horizons and audits can be kept and read; decoding goes on without."""

    model: str | None = None
