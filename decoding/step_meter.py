"""Measures one engine step for its observer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from decoding.engine.handle import Handle
from decoding.engine.observer import StepReport
from decoding.engine.runner import RunnerCounts


class StepMeter:
    """Made before the step of `plan` runs; `report` tells what it did."""

    def __init__(self, counts: RunnerCounts, plan: Sequence[Handle], began: float) -> None:
        self._counts, self._plan, self._began = counts, plan, began
        self._rows, self._padding, self._in_model = counts.total, counts.padding_rows, counts.model_seconds
        self._phases = [handle.state.phase for handle in plan]  # a gate may change them within the step

    def report(self, committed: int) -> StepReport:
        """The step as it stands; rollouts are reported as the request that they run for, whose ledger holds them."""
        counts = self._counts
        return StepReport(
            rows=counts.total - self._rows,
            padding_rows=counts.padding_rows - self._padding,
            guided=self._phases.count("guided"),
            base=self._phases.count("base"),
            committed=committed,
            seconds=time.monotonic() - self._began,
            model_seconds=counts.model_seconds - self._in_model,
            handles=list(dict.fromkeys(handle.owner or handle for handle in self._plan)),
        )
