"""Which settings of a gate are certified to lose little: each is tested only after the one before it has passed.

Fixed-sequence learn-then-test, from `never` towards earlier handoffs.

The loss of a setting is intention-to-treat at the served tail width: what full CFG would have met less what the gate's
handoff meets, averaged over all prompts, those that never hand off included (they lose 0). It is not monotone in
lateness, which is why every setting is tested. Testing in a fixed order spends no confidence on the number of settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gate_models.statistics.betting import SHARES, growth_rates, prompts_needed, wealth_after

Setting = tuple[float, float]
"""(earliest, price)."""
MARGINS: Final = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12)
"""The table of eps that is calibrated; a request's margin is rounded down to one of them."""


@dataclass(frozen=True, slots=True)
class TestedSetting:
    """One setting, tested on calibration prompts: no handoff before `earliest` (a fraction of the steps), then as a
    value gate decides at `price` (success a forward evaluation).
    """

    earliest: float
    price: float
    mean_loss: float
    rates: tuple[tuple[float, ...], ...]
    """By margin of `MARGINS`, then by stake: what it wins a prompt (`growth_rates`). Decides at every confidence."""


@dataclass(frozen=True, slots=True)
class FixedSequenceTest:
    """The tested settings of one gate at one tail width, the latest handoff first; `never` stands before them."""

    prompts: int
    settings: tuple[TestedSetting, ...]

    @staticmethod
    def calibrate(tested: Sequence[tuple[Setting, NDArray[np.float64]]]) -> FixedSequenceTest:
        """From settings in their fixed order, the latest handoff first, with their losses [prompts].

        Every setting is tested on the same prompts, which trained nothing and ordered nothing. Raises `ValueError`
        where their numbers differ.
        """
        sizes = {values.size for _, values in tested}
        if len(sizes) != 1:
            raise ValueError("every setting needs the losses of the same prompts")
        settings = [
            TestedSetting(
                *setting,
                float(values.mean()) if values.size else 0.0,
                tuple(tuple(growth_rates(values, margin).tolist()) for margin in MARGINS),
            )
            for setting, values in tested
        ]
        return FixedSequenceTest(sizes.pop(), tuple(settings))

    def choose(self, margin: float, confidence: float) -> ChosenSetting:
        """The earliest setting that is certified at `margin`, with confidence `confidence`."""
        usable = [index for index, eps in enumerate(MARGINS) if eps <= margin + 1e-12]
        if not usable:
            return ChosenSetting(None, f"the smallest margin that is calibrated is {MARGINS[0]:g}")
        column, needed = usable[-1], -math.log1p(-confidence)
        certified: Setting | None = None
        for tested in self.settings:
            if wealth_after(self.prompts, tested.rates[column]) < needed:
                break
            certified = (tested.earliest, tested.price)
        if certified is not None:
            return ChosenSetting(certified, None)
        return ChosenSetting(None, self._refusal(column, confidence))

    def _refusal(self, column: int, confidence: float) -> str:
        text = (
            f"no handoff keeps the loss below {MARGINS[column]:g} with {100 * confidence:g}% confidence "
            f"on {self.prompts} calibration prompts"
        )
        more = prompts_needed(self.settings[0].rates[column], confidence) if self.settings else None
        if more is None:
            return f"{text}; the loss that was observed is too large for more prompts to help"
        return f"{text}; about {max(1, more - self.prompts)} more would do if they lose as these"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        settings = [[s.earliest, s.price, s.mean_loss, [list(rates) for rates in s.rates]] for s in self.settings]
        return {"prompts": self.prompts, "margins": list(MARGINS), "stakes": list(SHARES), "rungs": settings}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> FixedSequenceTest:
        """Raises `ValueError` where the tables of margins or of stakes are others, or a setting does not fit them."""
        if tuple(content["margins"]) != MARGINS or tuple(content["stakes"]) != SHARES:
            raise ValueError("the ladder was calibrated at other margins or with other stakes")
        return FixedSequenceTest(content["prompts"], tuple(_tested(*fields) for fields in content["rungs"]))


def _tested(earliest: float, price: float, mean_loss: float, rates: Sequence[Sequence[float]]) -> TestedSetting:
    if [len(row) for row in rates] != [len(SHARES)] * len(MARGINS):
        raise ValueError("a rung needs the rate of every stake at every margin")
    return TestedSetting(earliest, price, mean_loss, tuple(tuple(row) for row in rates))


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    """The setting that was certified, or why none was."""

    setting: Setting | None
    refusal: str | None
