"""Which candidates a step commits: boosted tokens once each, started words first, the canvas's ends last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoding.kernel import Candidates
from decoding.order import GUIDANCE_BOOST, PROBABILITY
from decoding.selection import Limits, in_margins, inside_words, select

MASK = 99


def candidates(tokens: list[int], boost: list[float]) -> Candidates:
    values = torch.tensor(boost)
    zeros = torch.zeros_like(values)
    ids = torch.tensor(tokens)
    return Candidates(ids, values.abs(), zeros, zeros, ids, values, zeros, zeros)


@given(st.data())
def test_boosted_tokens_are_committed_once_each_between_schedule_and_width(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    boost = data.draw(st.lists(st.sampled_from([-0.5, 0.0, 0.3, 0.6, 0.9]), min_size=size, max_size=size))
    scheduled, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 8))
    canvas = np.array([MASK] * size + data.draw(st.lists(st.integers(0, 5), max_size=3)))
    late = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    every = np.arange(size)
    limits = Limits(scheduled, max(scheduled, width), boost=0.5)
    chosen = select(
        candidates(tokens, boost),
        every,
        every,
        order=GUIDANCE_BOOST,
        uniforms=torch.zeros(size),
        limits=limits,
        canvas=canvas,
        started=np.zeros(size, dtype=bool),
        margin=late,
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


def test_a_started_word_goes_before_a_larger_boost_but_only_in_guided_orders() -> None:
    found, positions = candidates([7, 8, 9], [0.9, 0.1, 0.5]), np.arange(3)
    started = np.array([False, True, False])
    picked = [
        select(
            found,
            positions,
            positions,
            order=order,
            uniforms=torch.zeros(3),
            limits=Limits(1, 1),
            canvas=np.full(3, MASK),
            started=started,
            margin=np.zeros(3, dtype=bool),
        ).tolist()
        for order in (GUIDANCE_BOOST, PROBABILITY)
    ]
    assert picked == [[1], [0]]


def test_ends_of_the_canvas_go_last_but_for_started_words_and_only_in_guided_orders() -> None:
    found, positions = candidates([7, 8, 9, 6], [0.9, -0.2, 0.5, 0.7]), np.arange(4)
    margin = np.array([True, False, False, True])
    picked = [
        select(
            found,
            positions,
            positions,
            order=order,
            uniforms=torch.zeros(4),
            limits=Limits(count, count),
            canvas=np.full(4, MASK),
            started=started,
            margin=margin,
        ).tolist()
        for order, started, count in (
            (GUIDANCE_BOOST, np.zeros(4, dtype=bool), 1),
            (GUIDANCE_BOOST, np.zeros(4, dtype=bool), 3),
            (GUIDANCE_BOOST, np.array([False, False, False, True]), 1),
            (PROBABILITY, np.zeros(4, dtype=bool), 1),
        )
    ]
    assert picked == [[2], [0, 1, 2], [3], [0]]


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
