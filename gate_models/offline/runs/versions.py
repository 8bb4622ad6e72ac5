"""Versions that a result depends on, written into every result file."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import torch


def software() -> dict[str, str]:
    """Versions that a text can depend on."""
    try:
        astargate = version("astargate")
    except PackageNotFoundError:
        astargate = "source tree"
    return {"astargate": astargate, "torch": torch.__version__}
