"""Where a repair begins (`repair.anchor`): the end of the run, a fraction of its steps, or where it promised most.

A peak becomes the step that the caller has measured, or the end of the run and the reason why; the decoder knows
neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from decoding.policy.checks import PolicyError
from decoding.policy.repair import END, Repair
from decoding.request.job import Job
from service.schemas.policy import PEAK, RepairRequest

NOWHERE: Final = "no measured horizons are kept here; a server keeps those of its callers"


@dataclass(frozen=True, slots=True)
class PeakChoice:
    """The step at which q0 is highest, or why it is not known."""

    step: int | None
    reason: str | None = None


def repair_of(asked: RepairRequest) -> Repair:
    """The decoder's repair; a peak is the end of the run until `at_peak`. Raises `PolicyError`."""
    given = asked.model_dump(exclude_none=True)
    anchor = given.get("anchor", END)
    if not isinstance(anchor, float | int) and anchor not in (END, PEAK):
        raise PolicyError("repair.anchor", f"must be '{END}', '{PEAK}' or a fraction of the steps")
    return Repair(**given | {"anchor": END if anchor == PEAK else anchor})


def asks_for_peak(asked: RepairRequest | None) -> bool:
    return asked is not None and asked.anchor == PEAK


def at_peak(job: Job, peak: PeakChoice) -> Job:
    """`job` with its repair anchored at the peak, as the fraction that `step_at` maps to that step."""
    repair = job.policy.repair
    if repair is None or peak.step is None:
        return job
    return replace(job, policy=replace(job.policy, repair=replace(repair, anchor=peak.step / job.steps)))
