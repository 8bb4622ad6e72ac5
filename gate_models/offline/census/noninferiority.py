"""Inference over prompts (Appendix C.5): percentile bootstrap with prompts as the unit, and the noninferiority test.

Primary estimand: freeze at a* minus full CFG over the *full* census, censored prompts at a difference of zero.
Secondary, beside it and never in its place: the survivors, prompts whose horizon is preterminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.committor.crossfit import PromptValue
from gate_models.committor.fates import CENSORED
from gate_models.statistics.intervals import Estimate

MARGIN: Final = 0.03
"""Success that a handoff may lose."""
SENSITIVITY_MARGIN: Final = 0.05
ENOUGH_PROMPTS: Final = 20
"""From here on a verdict counts: of fewer prompts the bootstrap sees too little variation, of one none at all."""
REPLICATES: Final = 2000


def by_prompt(samples: Sequence[Mapping[str, Any]], value: str = "satisfied") -> dict[str, float]:
    """Mean of a value over the evaluated samples of each prompt."""
    found: dict[str, list[float]] = {}
    for sample in samples:
        found.setdefault(sample["prompt_id"], []).append(sample[value])
    return {prompt: float(np.mean(values)) for prompt, values in found.items()}


def bootstrap(
    values: NDArray[np.float64], *, seed: int = 0, replicates: int = REPLICATES, confidence: float = 0.95
) -> Estimate:
    """Mean of per-prompt values [P] with its percentile interval. Raises `ValueError` where there is none."""
    if values.size == 0:
        raise ValueError("no prompts to resample")
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[rng.integers(values.size, size=(min(256, replicates - start), values.size))].mean(1)
            for start in range(0, replicates, 256)
        ]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(values.mean()), float(low), float(high), "prompt_bootstrap")


def paired_bootstrap(own: Mapping[Any, float], reference: Mapping[Any, float]) -> Estimate:
    """Mean of `own` less `reference` over the prompts that both have. Raises `ValueError` where they share none."""
    shared = sorted(own.keys() & reference.keys())
    return bootstrap(np.array([own[prompt] - reference[prompt] for prompt in shared]))


@dataclass(frozen=True, slots=True)
class Noninferiority:
    """A row of Table 1: the full census of one subtask. Rates are cross-fitted."""

    prompts: int
    full: float
    handoff: float
    difference: Estimate
    censored: int
    """Prompts without a preterminal horizon (plug-in)."""
    survivors: int
    survivor_difference: Estimate | None
    """Over the survivors alone (secondary); None without any."""
    optimism: float
    """Mean of what selecting and reading on the same rollouts adds at a* (survivors count as all prompts do)."""

    @property
    def retention(self) -> float | None:
        """Success kept; None where full CFG never succeeds."""
        return self.handoff / self.full if self.full > 0 else None

    @property
    def few(self) -> bool:
        """Whether the interval is of too few prompts to be believed, and the verdict with it."""
        return self.prompts < ENOUGH_PROMPTS

    def holds(self, margin: float = MARGIN) -> bool:
        """Whether the lower bound of the difference is above -margin."""
        return self.difference.low > -margin


def noninferiority(values: Sequence[PromptValue], *, seed: int = 0, replicates: int = REPLICATES) -> Noninferiority:
    """Freeze at a* against full CFG over the prompts of a subtask. Raises `ValueError` where there is none."""
    difference = bootstrap(np.array([value.difference for value in values]), seed=seed, replicates=replicates)
    kept = [value for value in values if value.fate not in CENSORED and value.survivor_difference is not None]
    survivors = np.array([value.survivor_difference for value in kept], dtype=np.float64)
    return Noninferiority(
        prompts=len(values),
        full=float(np.mean([value.full for value in values])),
        handoff=float(np.mean([value.handoff for value in values])),
        difference=difference,
        censored=sum(value.fate in CENSORED for value in values),
        survivors=len(kept),
        survivor_difference=bootstrap(survivors, seed=seed, replicates=replicates) if kept else None,
        optimism=float(np.mean([value.optimism for value in values])),
    )
