"""The model and its engine, as the service holds them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from decoding.constraints import warm_up
from decoding.engine import Engine
from decoding.gating import GateResolver
from decoding.handle import Handle
from decoding.models.protocol import DenoisingModel
from decoding.models.registry import load_model
from decoding.observer import Observer
from decoding.runner import Runner
from decoding.scheduler import Scheduler
from gate_models.constants import ConstantCut, ConstantGates, shipped_cuts
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model, its running engine, and the gates for it."""

    model: DenoisingModel
    engine: Engine
    gates: GateResolver
    gate_version: str
    cuts: tuple[ConstantCut, ...]
    """The calibrated cuts, one a family and regime."""


def load(
    settings: Settings, *, observer: Observer | None = None, on_news: Callable[[list[Handle]], None] | None = None
) -> Backend:
    """Load the model and start the engine: seconds to minutes. Raises `CheckpointError` or torch's own errors."""
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype, quantization=settings.quantization)
    warm_up()
    engine = Engine(
        model,
        runner=Runner(model, invariant=settings.batch_invariant),
        scheduler=Scheduler(max_rows=settings.max_rows, max_queued_rows=settings.max_queued_rows),
        threads=settings.threads or default_threads(),
        observer=observer,
        on_news=on_news,
    )
    cuts = tuple(shipped_cuts())
    gates = ConstantGates(cuts)
    return Backend(model, engine.start(), gates, gates.version if cuts else gates.builtin.version, cuts)


def default_threads() -> int:
    """One for each physical core, as torch counts them, that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), allowed))
