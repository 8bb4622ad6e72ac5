"""Gates that a policy's name leaves open, resolved offline as the server resolves them: calibrated and learned ones.

What they are depends on the family, the model and the whole setting. Where the server would fall back, guidance stays
on to the end (`on_fallback`'s default): the texts are full CFG's, and count (intention to treat).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from decoding.gates.builtin import NeverGate
from decoding.gates.protocol import Gate
from decoding.models.protocol import DenoisingModel
from decoding.policy.decoding_policy import DecodingPolicy
from decoding.policy.gate import GateSettings
from decoding.policy.presets import plainly_guided
from decoding.request.job import Attempt, Job, record_for
from gate_models.features.argmax_fill import Reader
from gate_models.gates import artifact
from gate_models.gates.bundle import GateBundle
from gate_models.gates.constant import ConstantGates, shipped_cuts
from gate_models.gates.drained import DrainedGates, shipped_thresholds
from gate_models.gates.learned_resolver import LEARNED, LearnedGates, shipped_folder
from gate_models.gates.paper_constants import paper_constants

RECORDED: Final = "recorded"
_OPEN: Final = ("constant", RECORDED, *LEARNED)
_CALIBRATED: Final[Mapping[str, Callable[[], Sequence[Any]]]] = {
    "constant": shipped_cuts,
    "drained": shipped_thresholds,
}


def needs_family(setting: GateSettings) -> bool:
    """Whether the gate of `setting` is known only with the family, or the prompt."""
    return setting.source in _OPEN or (setting.source == "drained" and setting.threshold is None)


def shipped_gates(model: DenoisingModel) -> LearnedGates:
    """The package's gates for `model`. One resolver serves all texts of a cell: the engine asks a gate once a step."""
    cuts = (*shipped_cuts(), *paper_constants(model.spec))
    bundles, refused = _stored()
    below = ConstantGates(cuts, DrainedGates(tuple(shipped_thresholds())))
    return LearnedGates(bundles, below, Reader.of(model.spec, model.codec), refused)


@cache
def _stored() -> tuple[list[GateBundle], list[tuple[str, str]]]:
    """The learned gates of the package, read once."""
    return artifact.load_all(shipped_folder())


def with_gate(job: Job, gate: Gate) -> Job:
    """`job` and its attempts under `gate`, recorded as it needs; under none they are plain full CFG, as a fallback."""

    def served(policy: DecodingPolicy) -> DecodingPolicy:
        return plainly_guided(policy) if isinstance(gate, NeverGate) else policy

    attempts = tuple(Attempt(served(attempt.policy), gate) for attempt in job.attempts)
    record = record_for([gate], job.record)
    return replace(job, gate=gate, policy=served(job.policy), attempts=attempts, record=record)


def evidence(setting: GateSettings, gates: Sequence[Gate], held: LearnedGates) -> tuple[Any, ...]:
    """What `gates`, resolved from `setting`, may be made of: part of what a result depends on."""
    calibrated = _CALIBRATED.get(setting.source)
    found: tuple[Any, ...] = () if calibrated is None else (calibrated(),)
    versions = sorted({bundle.version for bundle in held.bundles} & {gate.version for gate in gates})
    return (*found, versions) if versions or calibrated is None else found
