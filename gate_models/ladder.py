"""Fixed-sequence learn-then-test: settings from `never` towards earlier, each certified only after the one before it.

The loss of a setting is intention-to-treat at the served tail width: what full CFG would have met less what the gate's
handoff meets, averaged over all prompts, those that never hand off included (they lose 0). It is not monotone in
lateness, which is why every rung is tested; testing in a fixed order spends no confidence on the number of rungs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.betting import log_wealth, prompts_needed

Setting = tuple[float, float]
"""(earliest, price)."""
MARGINS: Final = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12)
"""The table of eps that is calibrated; a request's margin is rounded down to one of them."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One setting, tested on calibration prompts: no handoff before `earliest` (a fraction of the steps), then as a
    value gate decides at `price` (success a forward evaluation).
    """

    earliest: float
    price: float
    mean_loss: float
    log_wealth: tuple[float, ...]
    """By margin of `MARGINS`."""
    needed: tuple[int | None, ...]
    """Prompts in all that would certify each margin at 95 % if further ones lose as these; None: no number would."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one gate at one tail width, the latest handoff first; `never` stands before them."""

    prompts: int
    rungs: tuple[Rung, ...]

    @staticmethod
    def calibrate(tested: Sequence[tuple[Setting, NDArray[np.float64]]]) -> Ladder:
        """From settings in their fixed order, the latest handoff first, with their losses [prompts].

        Every setting is tested on the same prompts, which trained nothing and ordered nothing. Raises `ValueError`
        where their numbers differ.
        """
        sizes = {values.size for _, values in tested}
        if len(sizes) != 1:
            raise ValueError("every setting needs the losses of the same prompts")
        rungs = [
            Rung(
                *setting,
                float(values.mean()) if values.size else 0.0,
                tuple(log_wealth(values, margin) for margin in MARGINS),
                tuple(prompts_needed(values, margin, 0.95) for margin in MARGINS),
            )
            for setting, values in tested
        ]
        return Ladder(sizes.pop(), tuple(rungs))

    def choose(self, margin: float, confidence: float) -> Choice:
        """The earliest setting that is certified at `margin`, with confidence `confidence`."""
        usable = [index for index, eps in enumerate(MARGINS) if eps <= margin + 1e-12]
        if not usable:
            return Choice(None, f"the smallest margin that is calibrated is {MARGINS[0]:g}")
        column, needed = usable[-1], -math.log1p(-confidence)
        certified: Setting | None = None
        for rung in self.rungs:
            if rung.log_wealth[column] < needed:
                break
            certified = (rung.earliest, rung.price)
        if certified is not None:
            return Choice(certified, None)
        return Choice(None, self._refusal(column, confidence))

    def _refusal(self, column: int, confidence: float) -> str:
        text = (
            f"no handoff keeps the loss below {MARGINS[column]:g} with {confidence:.0%} confidence "
            f"on {self.prompts} calibration prompts"
        )
        more = self.rungs[0].needed[column] if self.rungs else None
        if more is None:
            return f"{text}; the loss that was observed is too large for more prompts to help"
        return f"{text}; about {max(1, more - self.prompts)} more would do if they lose as these"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        rungs = [[r.earliest, r.price, r.mean_loss, list(r.log_wealth), list(r.needed)] for r in self.rungs]
        return {"prompts": self.prompts, "margins": list(MARGINS), "rungs": rungs}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Ladder:
        """Raises `ValueError` where the table of margins is another one."""
        if tuple(content["margins"]) != MARGINS:
            raise ValueError("the ladder was calibrated at other margins")
        rungs: Sequence[Sequence[Any]] = content["rungs"]
        return Ladder(content["prompts"], tuple(Rung(e, p, m, tuple(w), tuple(n)) for e, p, m, w, n in rungs))


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting that was certified, or why none was."""

    setting: Setting | None
    refusal: str | None
