"""Which positions a pass of mending opens, and which tokens may stay there."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from decoding.sampling.kernel import keep_standing
from decoding.sampling.mending import NO_TOKEN, STANDS, opened_in, standing

END = 9


@given(st.lists(st.integers(0, 30), unique=True).map(sorted), st.integers(2, 6), st.integers(0, 31))
def test_the_passes_share_the_tail_of_a_text_out(tail: list[int], passes: int, end: int) -> None:
    """Each position up to the end of the text once, those of one pass far apart."""
    canvas = [1] * 31
    canvas[end:] = [END] * (31 - end)
    groups = [opened_in(tail, canvas, (END,), number, passes) for number in range(passes)]
    assert sorted(position for group in groups for position in group) == [p for p in tail if p <= end]
    for group in groups:
        assert all(later - sooner >= passes for sooner, later in itertools.pairwise(group))


def test_a_token_beside_its_like_does_not_stand() -> None:
    canvas = [5, 5, 6, 7, 6, END, END]
    assert standing(canvas, range(7), (END,)) == [NO_TOKEN, NO_TOKEN, 6, 7, 6, END, END]


def test_what_is_likely_enough_stays() -> None:
    share = torch.tensor([[0.5, STANDS * 0.5, 0.4, 0.1 - STANDS * 0.5], [0.9, 0.05, 0.05, 0.0], [0.9, 0.05, 0.05, 0.0]])
    kept = keep_standing(
        torch.tensor([2, 2, 2]), torch.tensor([1, 1, NO_TOKEN]), share.double(), share.amax(-1).double()
    )
    assert kept.tolist() == [1, 2, 2]
