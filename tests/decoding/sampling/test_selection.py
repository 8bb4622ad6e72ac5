"""Which candidates a step commits: boosted tokens once each, started words first, the canvas's ends last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoding.sampling.commit_order import CONFIDENCE_KINDS, ORDERS, Order
from decoding.sampling.kernel import Candidates
from decoding.sampling.selection import CommitLimits, Standing, in_margins, inside_words, select

MASK = 99

BOOST, PROBABILITY = ORDERS["guidance_boost"], CONFIDENCE_KINDS["probability"]


def candidates(tokens: list[int], boost: list[float]) -> Candidates:
    values = torch.tensor(boost)
    zeros = torch.zeros_like(values)
    ids = torch.tensor(tokens)
    return Candidates(ids, values.abs(), zeros, zeros, ids, zeros, values, zeros, zeros)


@given(st.data())
def test_boosted_tokens_are_committed_once_each_between_schedule_and_width(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    boost = data.draw(st.lists(st.sampled_from([-0.5, 0.0, 0.3, 0.6, 0.9]), min_size=size, max_size=size))
    scheduled, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 8))
    canvas = np.array([MASK] * size + data.draw(st.lists(st.integers(0, 5), max_size=3)))
    late = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    every = np.arange(size)
    limits = CommitLimits(scheduled, max(scheduled, width), boost=0.5)
    chosen = select(
        candidates(tokens, boost),
        every,
        every,
        order=BOOST,
        uniforms=torch.zeros(size),
        limits=limits,
        canvas=canvas,
        standing=Standing(np.zeros(size, dtype=bool), late, np.zeros(size, dtype=bool)),
    )
    best = sorted(every.tolist(), key=lambda i: (late[i], -boost[i], i))
    least = best[:scheduled]
    extra = [i for i in chosen.tolist() if i not in least]
    assert set(least) <= set(chosen.tolist())
    assert len(chosen) <= limits.quota
    assert list(chosen) == sorted(chosen)
    assert all(boost[i] >= 0.5 and not late[i] and tokens[i] not in canvas[canvas != MASK] for i in extra)
    assert len({tokens[i] for i in extra} | {tokens[i] for i in least}) == len(extra) + len({tokens[i] for i in least})
    left_out = [i for i in best[scheduled:] if boost[i] >= 0.5 and not late[i] and i not in extra]
    seen = {tokens[i] for i in chosen.tolist()} | set(canvas.tolist())
    assert len(chosen) == limits.quota or all(tokens[i] in seen for i in left_out)


def chosen_of(
    order: Order, boost: list[float], count: int = 1, started: tuple[int, ...] = (), margin: tuple[int, ...] = ()
) -> list[int]:
    """Positions that a step of `count` commits among candidates of all positions, some started, some in a margin."""
    every = np.arange(len(boost))
    return select(
        candidates(list(range(len(boost))), boost),
        every,
        every,
        order=order,
        uniforms=torch.zeros(len(boost)),
        limits=CommitLimits(count, count),
        canvas=np.full(len(boost), MASK),
        standing=Standing(np.isin(every, started), np.isin(every, margin), np.zeros(len(boost), dtype=bool)),
    ).tolist()


def test_a_started_word_goes_before_a_larger_boost_but_only_in_guided_orders() -> None:
    assert chosen_of(BOOST, [0.9, 0.1, 0.5], started=(1,)) == [1]
    assert chosen_of(PROBABILITY, [0.9, 0.1, 0.5], started=(1,)) == [0]


def test_ends_of_the_canvas_go_last_but_for_started_words_and_only_in_guided_orders() -> None:
    boost, margin = [0.9, -0.2, 0.5, 0.7], (0, 3)
    assert chosen_of(BOOST, boost, margin=margin) == [2]
    assert chosen_of(BOOST, boost, 3, margin=margin) == [0, 1, 2]
    assert chosen_of(BOOST, boost, started=(3,), margin=margin) == [3]
    assert chosen_of(PROBABILITY, boost, margin=margin) == [0]


@pytest.mark.parametrize(
    ("margins", "expected"),
    [
        ((1 / 16, 1 / 8), [0]),
        ((1 / 8, 1 / 4), [0, 6]),
        ((0.0, 0.0), []),
        ((0.15, 0.0), [0, 1]),
        ((1.0, 1.0), [0, 1, 3, 6]),
    ],
)
def test_margins_are_counted_from_the_ends_of_the_canvas(margins: tuple[float, float], expected: list[int]) -> None:
    """End-of-text (5) stands nowhere else."""
    positions, tokens = np.array([0, 1, 3, 6, 7]), np.array([7, 7, 7, 7, 5])
    assert positions[in_margins(positions, tokens, 8, margins, (5,))].tolist() == expected


def test_inside_words() -> None:
    """7 continues a word. In 1 _ _ 7 _: 1 and 4 only with a continuation, 2 with anything."""
    canvas = np.array([1, MASK, MASK, 7, MASK])
    positions = np.array([1, 2, 4])
    assert inside_words(canvas, positions, np.array([7, 3, 7]), MASK, {7}).tolist() == [True, True, True]
    assert inside_words(canvas, positions, np.array([3, 3, 3]), MASK, {7}).tolist() == [False, True, False]
    assert not inside_words(canvas, positions, np.array([7, 3, 7]), MASK, frozenset()).any()
