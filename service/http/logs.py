"""The server's log: text for a terminal, or one JSON object a line. Neither holds prompt text, unless asked to."""

from __future__ import annotations

import json
import logging
import time
from contextvars import ContextVar
from typing import Final

from service.config.settings import Settings

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that the current task serves."""
ACCESS: Final = logging.getLogger("astargate.access")
PROMPTS: Final = logging.getLogger("astargate.prompts")
_FIELDS: Final = ("method", "path", "status", "seconds", "key_id", "prompt")
"""What our own lines carry beside their message."""


class WithRequestId(logging.Filter):
    """Adds the id of the request that a record belongs to."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = REQUEST_ID.get()
        return True


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, request_id, and the fields of the access log."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", None),
        }
        entry |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in entry.items() if value is not None})


def configure(settings: Settings) -> None:
    """Set up the process's log, uvicorn's included."""
    handler = logging.StreamHandler()
    handler.addFilter(WithRequestId())
    handler.setFormatter(
        JsonFormatter() if settings.log_format == "json" else logging.Formatter("%(levelname)s: %(name)s: %(message)s")
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    ACCESS.disabled = not settings.access_log
    PROMPTS.disabled = not settings.log_prompts
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request that this process sends
