"""The arms of the repair census: which failed runs are taken, from which state, and which positions are reopened.

The paper's Appendix "Repair by Reopening" leaves some rules open; these are ours. A recorded run belongs to a
population only where its own text fails. It is *hopeless* where q0 never exceeds `FLOOR` on the freeze grid, *collapse*
where q0 reaches `PEAK` and later falls to half of its peak or less. Anchors: *post* three steps after the peak of q0
(the last of equal ones), at most T - 1; *pre* at half of a* (the freeze estimator's) or of the peak, whichever is
earlier: a* of these runs is mostly censored, and half of T would lie behind the post anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from decoding.constraints.base.constraint import Constraint
from decoding.engine.handle import DecodingResult
from decoding.gates.builtin import NeverGate
from decoding.models.protocol import DenoisingModel
from decoding.policy.gate import GateSettings
from decoding.policy.repair import Repair, Selector
from decoding.repair.keyword_argmax import open_positions, probe, probe_job
from decoding.repair.passes import DecodedText
from decoding.repair.rounds import reopened_job, rollout_jobs
from decoding.repair.selectors import RANKINGS, Key, RepairContext, by_rollouts, candidates_of, first
from decoding.request.job import Anchor, Job
from gate_models.committor.fates import last_peak, persistent_point

FLOOR: Final = 0.1
PEAK: Final = 0.5
POST_STEPS: Final = 3
Population = Literal["hopeless", "collapse"]
CONTROL: Final = "control"


def population_of(base: NDArray[np.float64]) -> Population | None:
    """The population of a run that failed, from q0 [F] along the freeze grid; None: neither."""
    if base.max() <= FLOOR:
        return "hopeless"
    peak = int(base.argmax())
    if base[peak] >= PEAK and base[peak:].min() <= base[peak] / 2:
        return "collapse"
    return None


def anchors_of(
    base: NDArray[np.float64], guided: NDArray[np.float64], grid: Sequence[int], steps: int
) -> dict[str, int]:
    """The steps of the anchors, from q0 and qg [F] at the steps `grid`."""
    peak = last_peak(base)
    horizon = min(int(persistent_point(base, guided)), peak)
    return {"pre": max(1, grid[horizon] // 2), "post": min(steps - 1, grid[peak] + POST_STEPS)}


def recorded_job(job: Job) -> Job:
    """The run whose states are reopened: full CFG, judged once."""
    policy = replace(job.policy, preset="full_cfg", gate=GateSettings("never"), repair=Repair(max_rounds=0))
    return replace(job, policy=policy, gate=NeverGate())


def anchor_at(outcome: DecodingResult, step: int, mask_id: int) -> Anchor:
    """The state of a recorded run before step `step` of its schedule (empty steps are not in its trace)."""
    count = sum(stats.step < step for stats in outcome.trace.steps)
    return Anchor(tuple(outcome.trace.prefix(count, mask_id).tolist()), step, outcome.trace.place(count))


@dataclass(frozen=True, slots=True)
class Reopening:
    """One arm: the anchored state with some of its positions open again."""

    anchor: str
    step: int
    arm: str
    """A selector, or the control, which reopens nothing."""
    count: int
    """K asked for; 0 for the control and for restart, which reopens all."""
    positions: tuple[int, ...]


class Anchored:
    """The state of a recorded run at an anchor, and the selections from it."""

    def __init__(
        self, model: DenoisingModel, outcome: DecodingResult, predicate: Constraint, name: str, step: int
    ) -> None:
        if outcome.kept is None:
            raise ValueError("the recorded run must be judged; see recorded_job")
        self.decoded: DecodedText = outcome.kept
        self.name, self.step = name, step
        self.mask_id = model.spec.mask_id
        self.anchor = anchor_at(outcome, step, self.mask_id)
        self.candidates = candidates_of(self.anchor.canvas, self.mask_id, model.spec.end_ids)
        self._model, self._predicate = model, predicate

    @property
    def job(self) -> Job:
        return self.decoded.state.job

    def _context(self) -> RepairContext:
        noise = replace(self.job.noise, purpose="select", arm=f"{self.job.noise.arm}|{self.name}")
        return RepairContext(self.decoded, self.candidates, self._predicate, self._model.codec, noise)

    def keys(self, selector: Selector) -> dict[int, Key]:
        """The ranking of a selector that needs no forward evaluation."""
        return RANKINGS[selector](self._context())

    def probe_jobs(self) -> list[Job]:
        """The probe of selector `keyword_argmax`; none where no phrase is missing."""
        positions = open_positions(self._context())
        return [probe_job(self.job, self.anchor, positions, 1, self.mask_id)] if positions else []

    def probe_keys(self, probed: DecodingResult) -> dict[int, Key]:
        """The ranking by that probe."""
        return probe(self._context(), probed.trace)

    def rollouts(self, selector: Selector, count: int) -> list[Job]:
        """The rollouts of a committor selector, `count` for each candidate in turn."""
        noise = replace(self.job.noise, arm=f"{self.job.noise.arm}|{self.name}|{selector}|")
        return rollout_jobs(
            replace(self.job, noise=noise),
            Repair(selector, rollouts=count),
            self.anchor,
            self.candidates,
            1,
            self.mask_id,
        )

    def rollout_keys(self, outcomes: Sequence[DecodingResult]) -> dict[int, Key]:
        """The ranking by those rollouts."""
        texts = [self._model.codec.decode(list(outcome.content)) for outcome in outcomes]
        return by_rollouts(self.candidates, texts, self._predicate)

    def reopening(self, arm: str, count: int, keys: dict[int, Key] | None) -> Reopening:
        """The arm that reopens the `count` first positions of a ranking (None: every committed one)."""
        committed = tuple(index for index, token in enumerate(self.anchor.canvas) if token != self.mask_id)
        chosen = committed if keys is None else first(keys, count, frozenset())
        return Reopening(self.name, self.step, arm, count, chosen)

    def continuations(self, reopening: Reopening, count: int) -> list[Job]:
        """Guided continuations of an arm, each with noise of its own."""
        job = self.job
        arm = f"{job.noise.arm}|{reopening.anchor}|{reopening.arm}|{reopening.count}"
        return [
            reopened_job(
                replace(job, noise=replace(job.noise, purpose="repair", arm=arm, rollout=index)),
                self.anchor,
                reopening.positions,
                1,
                self.mask_id,
            )
            for index in range(count)
        ]

    def plain_control(self, index: int) -> Job:
        """The control by the plain schedule, masks left over steps left of the recorded run: must be bit-equal."""
        (control,) = self.continuations(Reopening(self.name, self.step, CONTROL, 0, ()), index + 1)[index:]
        return replace(control, start_step=self.step, start_place=self.anchor.place)
