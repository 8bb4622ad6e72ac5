"""How many positions a request commits at each step: the blocks of its canvas, and the steps for each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, int, bool]
TailSchedule = Literal["constant", "growing"]
TAIL_SCHEDULES: Final[tuple[TailSchedule, ...]] = ("constant", "growing")
CONSTANT: Final = "constant"

LONGEST_MOVING_BLOCK = 8
"""Of a streamed canvas that its request and its model leave undivided: text appears at most so many tokens late."""


def step_at(fraction: float, steps: int) -> int:
    """The step at a fraction of the run: floor(f T + 1/2)."""
    return math.floor(fraction * steps + 0.5)


def growing_width(entered: int, masks: int, width: int) -> int:
    """Positions that a growing tail commits next, of `masks` left where it began with `entered`.

    It takes as many steps as `width` positions a step would, with few at first, when nothing is there to go by, and
    nearly twice `width` at the end: after a share s of its steps s^2 of the positions are decided, one a step at least.
    """
    steps = -(-entered // width)
    target = 0
    for step in range(1, steps + 1):
        target = max(target + 1, entered * step * step // (steps * steps))
        if target > entered - masks:
            return target - (entered - masks)
    raise ValueError(f"{masks} masks are left of {entered}: there is nothing to commit")


def check_blocks(gen_length: int, steps: int, block_length: int | None, canvas_field: str = "gen_length") -> int:
    """Number of blocks; raises `ValueError` unless blocks divide the canvas and the steps (LLaDA's rule).

    `canvas_field` is the caller's name of the canvas length.
    """
    if block_length is None:
        return 1
    if block_length < 1 or gen_length % block_length:
        raise ValueError(f"block_length must divide {canvas_field} ({gen_length})")
    blocks = gen_length // block_length
    if steps % blocks:
        raise ValueError(f"steps must be a multiple of the number of blocks ({blocks} = {canvas_field} / block_length)")
    return blocks


def moving_block(gen_length: int, steps: int) -> int | None:
    """The longest block of 2 to `LONGEST_MOVING_BLOCK` that cuts canvas and steps evenly into several, if any."""
    for length in range(min(LONGEST_MOVING_BLOCK, gen_length // 2), 1, -1):
        if gen_length % length == 0 and steps % (gen_length // length) == 0:
            return length
    return None


@dataclass(slots=True)
class BlockSchedule:
    """Where a request stands: the current block and the steps that it has left.

    A serial phase spends all steps of a block, zero-quota steps included. A wide phase (more than the schedule asks a
    step) leaves a block as soon as it holds no mask.
    """

    gen_length: int
    steps: int
    blocks: int
    block: int = 0
    steps_left: int = 0
    filled: bool = False
    """Whether an end-of-text has filled positions: from then on no step is spent on a block without masks."""

    @property
    def place(self) -> Place:
        """Enough to take the schedule up again: (block, steps left, filled)."""
        return self.block, self.steps_left, self.filled

    @staticmethod
    def starting_at(
        step: int, masked: NDArray[np.bool_], steps: int, block_length: int | None, *, wide: bool = False
    ) -> BlockSchedule:
        """The schedule before step `step` of a run whose canvas has `masked` [L] positions open.

        The block follows from the step; a wide phase then leaves the blocks that hold no mask, as at a handoff.
        """
        length = int(masked.size)
        blocks = check_blocks(length, steps, block_length)
        per_block = steps // blocks
        block, into = divmod(step, per_block)
        schedule = BlockSchedule(length, steps, blocks, block, per_block - into if block < blocks else 0)
        if wide:
            schedule.skip_empty(masked)
        return schedule

    @property
    def start(self) -> int:
        """First position of the current block."""
        return self.block * self.gen_length // self.blocks

    @property
    def stop(self) -> int:
        """End of the region that may be committed now: every position left of it (LLaDA's candidates)."""
        return (self.block + 1) * self.gen_length // self.blocks

    @property
    def finished(self) -> bool:
        return self.block >= self.blocks

    def quota(self, masks: int, width: int = 1) -> int:
        """Masks left over steps left, rounded up (the same totals as LLaDA's floor-and-remainder rule).

        A phase of `width` > 1 commits that many where the schedule asks for fewer.
        """
        scheduled = -(-masks // max(1, self.steps_left))
        return scheduled if width == 1 else max(scheduled, width)

    def advance(self, masked: NDArray[np.bool_], *, wide: bool) -> None:
        """Account for one step that left `masked` [L] open."""
        self.steps_left -= 1
        if self.steps_left == 0 and not wide:
            self._next_block()
        if wide or self.filled:
            self.skip_empty(masked)

    def skip_empty(self, masked: NDArray[np.bool_]) -> None:
        """Leave every leading block that holds no mask."""
        while not self.finished and not masked[: self.stop].any():
            self._next_block()

    def shrink(self, masked_before: NDArray[np.bool_], masked_after: NDArray[np.bool_]) -> None:
        """Give back the steps of positions that were filled at once (end-of-text), in proportion, and of empty later
        blocks.
        """
        self.filled = True
        before, after = int(masked_before[: self.stop].sum()), int(masked_after[: self.stop].sum())
        if after:
            self.steps_left = -(-after * self.steps_left // before)
        self.skip_empty(masked_after)

    def _next_block(self) -> None:
        self.block += 1
        self.steps_left = self.steps // self.blocks


@lru_cache(maxsize=4096)
def planned_rows(
    gen_length: int,
    steps: int,
    block_length: int | None,
    handoff_step: int,
    guided_width: int,
    tail_width: int,
    tail_schedule: TailSchedule = CONSTANT,
) -> int:
    """Rows of a run from an empty canvas that hands off at `handoff_step`, by a dry run of the schedule."""
    masked = np.ones(gen_length, dtype=bool)
    guided, width = handoff_step > 0, guided_width if handoff_step > 0 else tail_width
    schedule = BlockSchedule.starting_at(0, masked, steps, block_length, wide=width > 1)
    step = rows = 0
    block, entered = -1, 0
    while not schedule.finished:
        if guided and step >= handoff_step:
            guided, width = False, tail_width
            if width > 1:
                schedule.skip_empty(masked)
                continue
        region = np.flatnonzero(masked[: schedule.stop])
        count = width
        if not guided and tail_schedule != CONSTANT:
            block, entered = (schedule.block, entered) if block == schedule.block else (schedule.block, region.size)
            count = growing_width(entered, region.size, width)
        masked[region[: schedule.quota(region.size, count)]] = False
        schedule.advance(masked, wide=width > 1)
        rows += 2 if guided else 1
        step += 1
    return rows
