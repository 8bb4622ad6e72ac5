"""Written by clients/python/generate_types.py from the server's openapi.json; do not edit."""

from __future__ import annotations

from astargate_client.transport.reply import Reply


class Health(Reply):
    status: str
    model: str | None = None
