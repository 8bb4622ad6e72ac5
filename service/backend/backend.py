"""Loads what the server decodes with: the model, its running engine and the gates for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from decoding.engine.engine import Engine
from decoding.engine.handle import Handle
from decoding.engine.observer import Observer
from decoding.engine.runner import Runner
from decoding.engine.scheduler import Scheduler
from decoding.models.checkpoint import CheckpointError
from decoding.models.generation import FILE, GenerationConfig
from decoding.models.protocol import DenoisingModel, ModelSpec
from decoding.models.registry import load_model
from decoding.policy.checks import PolicyError
from decoding.policy.model_defaults import policy_defaults
from decoding.policy.presets import check_defaults
from gate_models.gates.calibrated.constant import ConstantCut
from gate_models.gates.calibrated.drained import DrainedThreshold
from gate_models.gates.calibrated.pooled import PooledThreshold, unmeasured
from gate_models.gates.learned.audit_report import AuditReport, reports_in
from gate_models.gates.resolver import LearnedGates
from gate_models.gates.shipped import Calibrations, gates_for, shipped_folder
from service.backend.trial import try_out
from service.config.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model, its running engine, and the gates for it."""

    model: DenoisingModel
    engine: Engine
    gates: LearnedGates
    gate_version: str
    cuts: tuple[ConstantCut, ...]
    """The calibrated cuts, one a family and regime."""
    thresholds: tuple[DrainedThreshold, ...]
    """The calibrated thresholds of `drained`, one a family and regime."""
    reports: Mapping[str, AuditReport]
    """Offline audits by gate version."""
    pooled: PooledThreshold | None = None
    """The model's threshold over all settings."""


def check_generation(spec: ModelSpec) -> None:
    """Raise `CheckpointError` where the model's own defaults are no policy."""
    try:
        check_defaults(policy_defaults(spec.generation.policy))
    except PolicyError as error:
        raise CheckpointError(f"{FILE} of model {spec.name}: policy.{error.param} {error}") from None


def load(
    settings: Settings, *, observer: Observer | None = None, on_update: Callable[[list[Handle]], None] | None = None
) -> Backend:
    """Load the model and start the engine: seconds to minutes. Raises `CheckpointError` or torch's own errors."""
    model = load_model(settings.model, device=settings.device, dtype=settings.dtype, quantization=settings.quantization)
    if settings.defaults == "paper":
        model.spec = replace(model.spec, generation=GenerationConfig())
    check_generation(model.spec)
    try_out(model, invariant=settings.batch_invariant)
    engine = Engine(
        model,
        runner=Runner(model, invariant=settings.batch_invariant),
        scheduler=Scheduler(
            max_rows=settings.max_rows,
            max_queued_rows=settings.max_queued_rows,
            background_beside=settings.background_rows or (2 if settings.device == "cpu" else None),
        ),
        threads=settings.threads or default_threads(),
        observer=observer,
        on_update=on_update,
    )
    calibrations = _calibrations(model, settings)
    reports, unusable = reports_in([*([settings.gates] if settings.gates else []), shipped_folder()])
    gates = gates_for(model, calibrations, settings.gates, reports)
    for _, reason in gates.refused:
        logger.warning("a stored gate is not used: %s", reason)
    for reason in unusable:
        logger.warning("a stored audit is not shown: %s", reason)
    pooled = calibrations.pooled_of(model.spec.hash)
    if pooled is None:
        logger.warning("%s", unmeasured(model.spec.hash))
    measured = (calibrations.cuts, calibrations.thresholds, reports, pooled)
    return Backend(model, engine.start(), gates, gates.version, *measured)


def _calibrations(model: DenoisingModel, settings: Settings) -> Calibrations:
    """The package's and the operator's; a file of the operator's that cannot be read is left out."""
    try:
        return Calibrations.shipped(model.spec, settings.gates)
    except ValueError as error:
        logger.warning("stored thresholds are not used: %s", error)
        return Calibrations.shipped(model.spec)


def default_threads() -> int:
    """One for each physical core, as torch counts them, that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), allowed))
