"""Tail rules: which positions of a wide base step go together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.sampling.tail_rule import (
    CONFLICT,
    ENTROPY_BOUND,
    FACTOR,
    NEAR,
    RUN_HIGH,
    RUN_LOW,
    STABLE,
    STABLE_STEPS,
    TAIL_RULES,
    TailStep,
    run_numbers,
    together,
    without_repeats,
)

MASK, END = 99, 7
OTHERS = [name for name in TAIL_RULES if name != "top_k"]


@st.composite
def steps(draw: st.DrawFn) -> TailStep:
    canvas = draw(st.lists(st.sampled_from([MASK, MASK, MASK, 0, 1, 2, END]), min_size=1, max_size=24))
    positions = [index for index, token in enumerate(canvas) if token == MASK]
    size = len(positions)
    probability = draw(st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size))
    attention = np.array(draw(st.lists(st.floats(0.0, 3.0), min_size=size * size, max_size=size * size)))
    attention = attention.reshape(size, size)
    attention = np.maximum(attention, attention.T)
    return TailStep(
        sequence=sorted(range(size), key=lambda i: (-probability[i], i)),
        positions=positions,
        tokens=draw(st.lists(st.sampled_from([0, 1, 2, 3, END]), min_size=size, max_size=size)),
        probability=probability,
        entropy=draw(st.lists(st.floats(0.0, 2.0), min_size=size, max_size=size)),
        canvas=canvas,
        mask_id=MASK,
        end_ids=frozenset({END}),
        threshold=draw(st.sampled_from([0.0, 0.5])),
        unchanged=tuple(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))),
        attention=attention.tolist(),
    )


@given(steps(), st.sampled_from(OTHERS), st.integers(1, 4), st.integers(1, 8))
def test_counts_lie_between_what_the_schedule_needs_and_the_width(
    step: TailStep, rule: str, minimum: int, width: int
) -> None:
    limit = max(minimum, width)
    chosen = together(rule, step, minimum, limit).tolist()
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(step.sequence)
    assert min(minimum, len(step.sequence)) <= len(chosen) <= limit


@given(steps(), st.sampled_from(OTHERS))
def test_no_near_repeats_where_the_schedule_leaves_a_choice(step: TailStep, rule: str) -> None:
    chosen = together(rule, step, 1, 8).tolist()
    canvas = list(step.canvas)
    for index in chosen:
        canvas[step.positions[index]] = step.tokens[index]
    repeats = [
        index
        for index in chosen
        if step.tokens[index] != END
        and any(
            token == step.tokens[index] and at != step.positions[index] and abs(at - step.positions[index]) <= NEAR
            for at, token in enumerate(canvas)
        )
    ]
    assert not repeats or len(chosen) == 1
    assert not repeats or not without_repeats(step, step.sequence)


@given(steps())
def test_spaced_positions_are_apart(step: TailStep) -> None:
    chosen = TAIL_RULES["spaced"](step)
    for one in chosen:
        for other in chosen:
            ends = step.tokens[one] == step.tokens[other] == END
            assert one == other or ends or abs(step.positions[one] - step.positions[other]) >= 2


@given(steps())
def test_best_of_run_takes_one_likely_position_a_run_and_every_sure_one(step: TailStep) -> None:
    chosen = set(TAIL_RULES["best_of_run"](step))
    runs = run_numbers(step.canvas, step.mask_id)
    best: dict[int, int] = {}
    for index in step.sequence:
        best.setdefault(runs[step.positions[index]], index)
    wanted = {i for i in best.values() if step.probability[i] >= RUN_LOW}
    assert chosen == wanted | {i for i in step.sequence if step.probability[i] >= RUN_HIGH}


@given(steps())
def test_entropies_but_the_largest_stay_within_the_bound(step: TailStep) -> None:
    entropies = [step.entropy[index] for index in TAIL_RULES["entropy_bound"](step)]
    assert sum(entropies) - max(entropies, default=0.0) <= ENTROPY_BOUND + 1e-9
    assert bool(entropies) == bool(step.sequence)


@given(steps())
def test_factor_takes_the_largest_fitting_number(step: TailStep) -> None:
    chosen = TAIL_RULES["factor"](step)
    falling = sorted((step.probability[i] for i in step.sequence), reverse=True)
    fitting = [n for n, p in enumerate(falling, 1) if (n + 1) * (1 - p) < FACTOR]
    assert len(chosen) == max(fitting, default=0)


@given(steps())
def test_stable_takes_what_is_likely_and_has_stood_still(step: TailStep) -> None:
    chosen = TAIL_RULES["stable"](step)
    wanted = zip(step.probability, step.unchanged, strict=True)
    assert sorted(chosen) == [i for i, (p, still) in enumerate(wanted) if p >= STABLE and still >= STABLE_STEPS]


@given(steps())
def test_no_two_of_conflict_attend_to_one_another(step: TailStep) -> None:
    """And whatever is left out attends to one that is better and was taken."""
    chosen = TAIL_RULES["conflict"](step)

    def clash(i: int, j: int) -> bool:
        both_end = step.tokens[i] in step.end_ids and step.tokens[j] in step.end_ids
        return step.attention[i][j] > CONFLICT and not both_end

    assert not any(clash(i, j) for i in chosen for j in chosen if i != j)
    for left in set(step.sequence) - set(chosen):
        assert any(clash(left, i) and step.sequence.index(i) < step.sequence.index(left) for i in chosen)


def test_runs_are_numbered_from_left_to_right() -> None:
    assert run_numbers([MASK, MASK, 0, MASK, 1, 2, MASK, MASK], MASK) == [1, 1, 1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("rule", OTHERS)
def test_a_step_that_must_repeat_still_commits(rule: str) -> None:
    """Only token 1 is on offer, beside a token 1: the schedule must go on all the same."""
    step = TailStep(
        [0, 1], [1, 2], [1, 1], [0.9, 0.8], [0.1, 0.2], [1, MASK, MASK], MASK, frozenset({END}), 0.0, (2, 2),
        [[0.0, 0.0], [0.0, 0.0]],
    )  # fmt: skip
    assert np.array_equal(together(rule, step, 1, 2), [0])
