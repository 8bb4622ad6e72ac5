"""Everything that a server loads before its first answer: `tests.service.process` forks servers from here."""

from __future__ import annotations

import service.cli
import service.server
from decoding.models.registry import load_model

__all__ = ["service"]

load_model("mini")  # imports parts of torch that no module names
