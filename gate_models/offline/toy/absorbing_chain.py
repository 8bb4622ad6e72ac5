"""A Markov chain simple enough for pencil and paper, on which the tests check every claim about committors.

The absorbing-committor chain and its two-position coupling (paper Appendix B), in closed form and by recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AbsorbingChain:
    """One coordinate: at step t it commits with hazard_t, to 1 with probability q and to 0 otherwise; else it waits."""

    propensity: float
    """q before the commit."""
    hazards: tuple[float, ...]

    @property
    def values(self) -> Tensor:
        """The three values of the committor: open, failed, met."""
        return torch.tensor([self.propensity, 0.0, 1.0], dtype=torch.float64)

    def kernel(self, step: int) -> Tensor:
        """[3, 3] over (open, failed, met)."""
        hazard, q = self.hazards[step], self.propensity
        open_ = [1.0 - hazard, hazard * (1.0 - q), hazard * q]
        return torch.tensor([open_, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

    def laws(self) -> list[Tensor]:
        """Law over (open, failed, met) at t = 0..T."""
        laws = [torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)]
        for step in range(len(self.hazards)):
            laws.append(laws[-1] @ self.kernel(step))
        return laws

    def spends(self) -> list[float]:
        """Variance spent at each step: E[hazard_t q_t (1 - q_t)]."""
        spread = self.propensity * (1.0 - self.propensity)
        return [hazard * float(law[0]) * spread for hazard, law in zip(self.hazards, self.laws(), strict=False)]

    def option_left(self) -> list[float]:
        """E[q_t (1 - q_t)] at t = 0..T: what is still undecided."""
        return [float(law @ (self.values * (1.0 - self.values))) for law in self.laws()]


@dataclass(frozen=True, slots=True)
class CoupledPair:
    """Coordinate 2 succeeds with `high` if coordinate 1 committed to success and with `low` otherwise.

    Guidance acts on coordinate 1 alone, which commits by the hazards: to success with probability `guided` under
    guidance and `base` without.
    """

    hazards: tuple[float, ...]
    guided: float
    base: float
    high: float
    low: float

    def switch_curve(self) -> Tensor:
        """Success of coordinate 2 with guidance before step t, t = 0..T; coordinate 1 fails where it never commits."""
        return torch.tensor([self._success(t) for t in range(len(self.hazards) + 1)], dtype=torch.float64)

    def _success(self, switch: int) -> float:
        open_, met = 1.0, 0.0
        for step, hazard in enumerate(self.hazards):
            met += open_ * hazard * (self.guided if step < switch else self.base)
            open_ *= 1.0 - hazard
        return self.low + (self.high - self.low) * met
