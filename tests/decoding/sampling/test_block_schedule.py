"""Contract 2: quota from own masks over own steps; the same totals as LLaDA's rule; zero-quota steps count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.sampling.block_schedule import (
    TAIL_SCHEDULES,
    BlockSchedule,
    check_blocks,
    growing_width,
    planned_rows,
    step_at,
)
from gate_models.committor.choices import FREEZE_GRID


def reference_quotas(masks: int, steps: int) -> list[int]:
    """LLaDA's rule: the floor each step, one more in the first `masks mod steps`."""
    floor, extra = divmod(masks, steps)
    return [floor + (index < extra) for index in range(steps)]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int | None]:
    blocks = draw(st.integers(1, 6))
    return blocks * (size := draw(st.integers(1, 12))), blocks * draw(st.integers(1, 20)), size if blocks > 1 else None


@given(shapes())
def test_serial_schedule_is_llada_rule_in_every_block(shape: tuple[int, int, int | None]) -> None:
    length, steps, block_length = shape
    masked = np.ones(length, dtype=bool)
    schedule = BlockSchedule.starting_at(0, masked, steps, block_length)
    quotas = []
    while not schedule.finished:
        open_ = np.flatnonzero(masked[: schedule.stop])
        quotas.append(schedule.quota(open_.size))
        masked[open_[: quotas[-1]]] = False
        schedule.advance(masked, wide=False)
    size = block_length or length
    assert quotas == reference_quotas(size, steps * size // length) * (length // size)
    assert not masked.any()


@given(shapes(), st.integers(0, 200))
def test_a_schedule_can_be_taken_up_at_any_step(shape: tuple[int, int, int | None], at: int) -> None:
    length, steps, block_length = shape
    at = min(at, steps)
    masked = np.ones(length, dtype=bool)
    schedule = BlockSchedule.starting_at(0, masked, steps, block_length)
    for _ in range(at):
        open_ = np.flatnonzero(masked[: schedule.stop])
        masked[open_[: schedule.quota(open_.size)]] = False
        schedule.advance(masked, wide=False)
    fresh = BlockSchedule.starting_at(at, masked, steps, block_length)
    assert fresh.finished == schedule.finished
    if not fresh.finished:
        assert (fresh.block, fresh.steps_left) == (schedule.block, schedule.steps_left)


@given(shapes(), st.integers(2, 16))
def test_wide_phase_commits_its_width_and_leaves_full_blocks_at_once(
    shape: tuple[int, int, int | None], width: int
) -> None:
    length, steps, block_length = shape
    masked = np.ones(length, dtype=bool)
    schedule = BlockSchedule.starting_at(0, masked, steps, block_length, wide=True)
    taken = 0
    while masked.any():
        open_ = np.flatnonzero(masked[: schedule.stop])
        assert open_.size > 0
        quota = schedule.quota(open_.size, width)
        assert quota >= width
        masked[open_[:quota]] = False
        schedule.advance(masked, wide=True)
        taken += 1
    assert schedule.finished
    assert taken <= steps or length > steps
    size = block_length or length
    if steps // schedule.blocks >= -(-size // width):
        assert taken == schedule.blocks * -(-size // width)


@pytest.mark.parametrize(("length", "steps", "block"), [(16, 16, 5), (16, 15, 8), (16, 16, 0), (16, 16, 32)])
def test_blocks_must_divide(length: int, steps: int, block: int) -> None:
    with pytest.raises(ValueError, match=r"block_length|steps"):
        check_blocks(length, steps, block)


def test_step_at_rounds_half_up() -> None:
    assert [step_at(f, 16) for f in FREEZE_GRID] == [1, 2, 2, 4, 5, 7, 10]
    assert step_at(0.5, 3) == 2
    assert step_at(0.0, 7) == 0
    assert step_at(1.0, 7) == 7


@given(st.integers(1, 64), st.integers(1, 16))
def test_a_growing_tail_takes_the_steps_of_a_constant_one(masks: int, width: int) -> None:
    """Equal rows, one position a step at least, and counts that never get smaller by more than rounding does."""
    counts, left = [], masks
    while left:
        counts.append(growing_width(masks, left, width))
        left -= counts[-1]
    assert left == 0
    assert len(counts) == -(-masks // width)
    assert all(later >= sooner - 1 for sooner, later in itertools.pairwise(counts))
    assert max(counts) <= 2 * width
    assert sum(counts[: len(counts) // 2]) <= masks // 2


def test_a_growing_tail_by_hand() -> None:
    left, counts = 32, []
    while left:
        counts.append(growing_width(32, left, 8))
        left -= counts[-1]
    assert counts == [2, 6, 10, 14]
    with pytest.raises(ValueError, match="nothing to commit"):
        growing_width(8, 0, 2)


@pytest.mark.parametrize("block_length", [None, 8])
def test_planned_rows_of_a_growing_tail(block_length: int | None) -> None:
    """The same as of a constant one where the schedule has steps to spare."""
    for handoff in (0, 5, 16):
        rows = [planned_rows(32, 32, block_length, handoff, 1, 4, name) for name in TAIL_SCHEDULES]
        assert rows[0] == rows[1]
