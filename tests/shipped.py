"""The model that the package ships, loaded once for every test of a process that leaves it as it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from decoding.models.generation import GenerationConfig
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model


@cache
def mini() -> DenoisingModel:
    """With the paper's defaults, as the shipped gates were measured; its own are in `generation_config.json`."""
    model = load_model("mini")
    model.spec = replace(model.spec, generation=GenerationConfig())
    return model
