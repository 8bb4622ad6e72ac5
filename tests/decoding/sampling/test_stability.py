"""What a tail remembers of its predictions, and how far they have moved by it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.sampling.stability import (
    LEADERS,
    MILLION,
    UNCHANGED_BELOW,
    Leaders,
    Seen,
    TailState,
    divergence,
    leaders_of,
    remembered,
    unchanged,
)

LOGITS = st.lists(st.floats(-3.0, 3.0), min_size=8, max_size=8)


def kept(probabilities: np.ndarray) -> Leaders:
    ids = np.argsort(-probabilities, kind="stable")[:LEADERS]
    return leaders_of(ids.tolist(), probabilities[ids].tolist())


def softmax(logits: list[float]) -> np.ndarray:
    powers = np.exp(np.array(logits))
    return np.asarray(powers / powers.sum())


@given(LOGITS, LOGITS)
def test_what_is_kept_never_shows_more_than_has_moved(now: list[float], before: list[float]) -> None:
    p, q = softmax(now), softmax(before)
    whole = float((p * np.log(p / q)).sum())
    assert 0.0 <= divergence(kept(p), kept(q)) <= whole + 1e-3


@given(LOGITS, LOGITS)
def test_a_vocabulary_that_is_kept_whole_gives_the_divergence_itself(now: list[float], before: list[float]) -> None:
    p, q = softmax(now[:LEADERS]), softmax(before[:LEADERS])
    assert divergence(kept(p), kept(q)) == pytest.approx(float((p * np.log(p / q)).sum()), abs=1e-3)


def test_another_best_token_is_a_change_that_the_bound_may_miss() -> None:
    before = leaders_of([1, 2, 3, 4], [0.7, 0.2, 0.05, 0.03])
    now = leaders_of([5, 2, 3, 4], [0.7, 0.2, 0.05, 0.03])
    assert divergence(now, before) == 0.0, "all of it moved among tokens that are in one list only"
    assert not unchanged(now, before)
    assert unchanged(before, before)


def test_counts_grow_while_a_prediction_stays_and_start_again() -> None:
    still, moved = leaders_of([1, 2], [0.8, 0.2]), leaders_of([1, 2], [0.5, 0.5])
    seen: tuple[Seen, ...] = ()
    counts = []
    for leaders in (still, still, still, moved, moved):
        seen = remembered(seen, [4], [leaders])
        counts.append(seen[0].unchanged)
    assert counts == [0, 1, 2, 0, 1]
    assert remembered(seen, [5], [moved]) == (Seen(5, 0, moved),), "another position has no past"


def test_the_bound_itself_is_a_change() -> None:
    before = leaders_of([1, 2], [0.5, 0.5])
    shift = next(
        n for n in range(1, MILLION) if divergence(leaders_of([1], [0.5 + n / MILLION]), before) >= UNCHANGED_BELOW
    )
    for n, count in ((shift - 1, 1), (shift, 0)):
        now = leaders_of([1, 2], [0.5 + n / MILLION, 0.5 - n / MILLION])
        assert remembered((Seen(0, 0, before),), [0], [now])[0].unchanged == count
    assert math.isclose(shift / MILLION, math.sqrt(UNCHANGED_BELOW / 2), rel_tol=0.02)


def test_a_state_survives_being_plain_tuples() -> None:
    leaders = leaders_of([1, 2], [0.25, 0.5])
    state = TailState((Seen(3, 1, leaders),), entered=7)
    assert TailState.of((((3, 1, tuple(leaders)),), 7)) == state
