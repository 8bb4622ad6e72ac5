"""Does ending guidance at the measured step a* lose success? A noninferiority test over prompts (Appendix C.5).

Primary estimand: freeze at a* minus full CFG over the *full* census, censored prompts at a difference of zero.
Secondary, beside it and never in its place: the survivors, prompts whose horizon is preterminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gate_models.committor.crossfit import PromptValue
from gate_models.committor.fates import CENSORED
from gate_models.statistics.bootstrap import REPLICATES, bootstrap
from gate_models.statistics.intervals import Estimate

MARGIN: Final = 0.03
"""Success that a handoff may lose."""
SENSITIVITY_MARGIN: Final = 0.05
ENOUGH_PROMPTS: Final = 20
"""From here on a verdict counts: of fewer prompts the bootstrap sees too little variation, of one none at all."""


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
