"""The model and its engine, as the service holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

import torch

from decoding.constraints import warm_up
from decoding.engine import Engine
from decoding.gating import BuiltinGates, GateResolver
from decoding.handle import Handle
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.observer import Observer
from decoding.runner import Runner
from decoding.scheduler import Scheduler
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model, its running engine, and the gates for it."""

    model: DenoisingModel
    engine: Engine
    gates: GateResolver
    gate_version: str
    constants: Mapping[str, float]
    """The calibrated cut of each family."""


def load(
    settings: Settings, *, observer: Observer | None = None, on_news: Callable[[list[Handle]], None] | None = None
) -> Backend:
    """Load the model and start the engine: seconds to minutes. Raises `CheckpointError` or torch's own errors."""
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype)
    warm_up()
    engine = Engine(
        model,
        runner=Runner(model, invariant=settings.batch_invariant),
        scheduler=Scheduler(max_rows=settings.max_rows, max_queued_rows=settings.max_queued_rows),
        threads=settings.threads or default_threads(),
        observer=observer,
        on_news=on_news,
    )
    gates = BuiltinGates(constants())
    return Backend(model, engine.start(), gates, gates.version, gates.constants)


def default_threads() -> int:
    """One for each physical core, as torch counts them, that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), allowed))


def constants() -> dict[str, float]:
    """The calibrated cut of each family, where the package ships them."""
    file = resources.files("gate_models") / "artifacts" / "constants.json"
    if not file.is_file():
        return {}
    return {str(family): float(cut) for family, cut in json.loads(file.read_text(encoding="utf-8")).items()}
