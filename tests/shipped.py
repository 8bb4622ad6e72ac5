"""The model that the package ships, loaded once for every test of a process that leaves it as it is."""

from __future__ import annotations

from functools import cache

from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model


@cache
def mini() -> DenoisingModel:
    return load_model("mini")
