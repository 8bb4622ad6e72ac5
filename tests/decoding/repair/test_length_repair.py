"""Repair of texts that are too short or too long: the tail moves, what counts stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decoding.constraints.compose.all_of import AllOf
from decoding.constraints.paper.ifeval import NoComma
from decoding.constraints.paper.keywords import Keywords
from decoding.constraints.paper.length import WordCount
from decoding.engine.engine import Engine
from decoding.models.bert_mini.network import MiniModel
from decoding.policy.repair import Repair
from decoding.repair.length_repair import shift_tail, words_missing
from decoding.repair.passes import finished
from decoding.repair.selectors import RepairContext
from decoding.request.canvas import CanvasState
from decoding.request.row_estimates import most_rows
from tests.decoding.repair.repairing import Letters, decode, repaired
from tests.decoding.tiny import job


def text_pass(model: MiniModel, predicate: Any, text: str, length: int = 16) -> RepairContext:
    """A finished canvas that holds `text`, its tokens committed with falling confidence from left to right."""
    ids = [*model.codec.encode(text), model.spec.end_ids[0]]
    start = (*ids, *[model.spec.end_ids[0]] * (length - len(ids)))
    state = CanvasState(
        job(model, length=length, start=start, start_step=length), model.spec.mask_id, model.spec.end_ids
    )
    attempt = finished(state, predicate, model.codec)
    attempt.confidence[: len(ids)] = [1.0 - 0.01 * index for index in range(len(ids))]
    return RepairContext(attempt, tuple(range(len(ids))), predicate, model.codec, state.job.noise)


@pytest.mark.parametrize(
    ("predicate", "text", "missing"),
    [
        (WordCount(6), "a b c d", 2),
        (WordCount(1, 3), "a b c d e", -2),
        (WordCount(1, 9), "a b c", 0),
        (Letters("z", 2), "a b c", 0),
        (NoComma(), "a, b, c", 0),
        (AllOf((WordCount(1, 3), Keywords(("e",)))), "a b c d e", -2),
    ],
)
def test_length_is_told_from_other_faults(model: MiniModel, predicate: Any, text: str, missing: int) -> None:
    assert words_missing(text_pass(model, predicate, text)) == missing


def test_the_tail_moves_and_keeps_what_counts(model: MiniModel) -> None:
    mask, end = model.spec.mask_id, model.spec.end_ids[0]
    ids = model.codec.encode("a b c d e")
    short = shift_tail(text_pass(model, WordCount(7), "a b c d e"), 3, 1, mask, end)
    assert short is not None
    assert short.canvas.count(mask) == len(short.positions) == 3
    assert [token for token in short.canvas if token not in {mask, end}] == [*ids[:4]]  # one open in place, two added
    assert short.canvas.index(mask) == short.positions[0]
    long = shift_tail(text_pass(model, WordCount(1, 3), "a b c d e"), 2, 1, mask, end)
    assert long is not None
    assert long.canvas[:3] == (ids[0], mask, mask)  # four tokens went, the last among them, two came
    kept = AllOf((WordCount(1, 3), Keywords(("d", "e"))))
    saved = shift_tail(text_pass(model, kept, "a b c d e"), 1, 1, mask, end)
    assert saved is not None
    assert {ids[3], ids[4]} <= set(saved.canvas)
    assert np.isnan(saved.decoded.confidence[list(saved.positions)]).all()
    again = shift_tail(text_pass(model, kept, "a b c d e"), 1, 2, mask, end)
    assert again is not None
    assert again.canvas != saved.canvas
    roomy = text_pass(model, WordCount(30), " ".join("abcdefghijklmno"), 16)
    assert shift_tail(roomy, 2, 1, mask, end) is not None
    assert shift_tail(text_pass(model, Letters("z", 1), "a b"), 2, 1, mask, end) is None


@pytest.mark.parametrize("predicate", [WordCount(9, 10), WordCount(1, 2)])
def test_a_text_of_the_wrong_length_is_repaired_whole(engine: Engine, model: MiniModel, predicate: Any) -> None:
    repair = Repair("constraint_aware", reopen=3, max_rounds=3)
    for outcome in decode(engine, *(repaired(model, repair, predicate, seed=seed) for seed in range(8))):
        for resumption, attempt in zip(outcome.trace.resumed, outcome.passes[1:], strict=True):
            masked = tuple(i for i, token in enumerate(resumption.canvas) if token == model.spec.mask_id)
            assert masked == attempt.reopened
            assert len(masked) <= 3
            assert model.spec.mask_id not in attempt.tokens
        assert outcome.ledger.total <= most_rows(outcome.job)
