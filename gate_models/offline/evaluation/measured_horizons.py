"""Policy `recorded`: each prompt is handed off at the horizon a* that a census measured for it (an oracle).

Its rollouts are not counted. As in the gate audit, a* is that of a serial base tail, whatever tail the policy has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from decoding.gates.builtin import FractionGate, NeverGate
from decoding.gates.protocol import Gate, Regime
from decoding.sampling.block_schedule import CONSTANT
from decoding.sampling.tail_rule import TOP_K
from gate_models.gates.calibrated.files import differences
from gate_models.gates.sources import RECORDED
from gate_models.offline.benchmarks.tasks import TaskPrompt
from gate_models.offline.census.labels import labels_of
from gate_models.offline.census.store import load_census
from gate_models.offline.gate_training.dataset import recorded_regime
from gate_models.policies.names import NamedPolicy

Horizons = Mapping[tuple[str, str], "PromptHorizon"]
"""By (task, prompt id)."""


@dataclass(frozen=True, slots=True)
class PromptHorizon:
    """A prompt's a*, and the setting that it was measured in."""

    regime: Regime
    step: int | None
    """None: censored, or the fate is not `handoff`."""

    def gate(self, asked: Regime) -> Gate:
        """The gate for a run in `asked`. Raises `ValueError` where that is another setting, its tail aside."""
        serial = replace(
            asked,
            tail_width=1,
            tail_rule=TOP_K,
            tail_schedule=CONSTANT,
            tail_mend=None,
            tail_threshold=None,
            tail_reuse=None,
        )
        if differing := differences(self.regime, serial):
            measured, wanted = asdict(self.regime), asdict(serial)
            settings = ", ".join(f"{name} {wanted[name]} (census: {measured[name]})" for name in differing)
            raise ValueError(f"policy 'recorded' is asked for in another setting than the census measured: {settings}")
        if self.step is None:
            return NeverGate(source=RECORDED)
        return FractionGate(self.step / asked.steps, source=RECORDED)


@lru_cache(maxsize=1)
def horizons_in(folder: str) -> Horizons:
    """The horizon of every prompt whose freeze sweep is complete. Raises `CensusError`."""
    census = load_census(folder, heavy=False)
    horizons = {}
    for prompt in census.prompts:
        labels = labels_of(census, prompt)
        if labels is not None:
            regime = recorded_regime(prompt.runs[census.main_run], census.manifest["model_hash"], census.settings)
            horizons[prompt.key] = PromptHorizon(
                regime, labels.horizon_step if labels.handoff_fate == "handoff" else None
            )
    return horizons


def check_recorded(
    named: Sequence[NamedPolicy], census: str | None, loaded: Mapping[str, Sequence[TaskPrompt]]
) -> None:
    """Raises `ValueError` where policy `recorded` lacks a census or prompts in it, or a census is not used."""
    recorded = [policy.name for policy in named if policy.policy.gate.source == RECORDED]
    if not recorded:
        if census is not None:
            raise ValueError("--census is only used by policy 'recorded'; name it or leave the census out")
        return
    if census is None:
        raise ValueError(f"policy {recorded[0]!r} needs --census FOLDER, the census that measured its horizons")
    measured = horizons_in(census)
    for task, prompts in loaded.items():
        lacking = sum((prompt.task, prompt.id) not in measured for prompt in prompts)
        if lacking:
            raise ValueError(
                f"policy {recorded[0]!r}: the census {census} has no horizon for {lacking} of {len(prompts)} prompts "
                f"of {task}; evaluate prompts that it measured (--n, --split), or take a larger census"
            )
